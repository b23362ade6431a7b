"""Is the machine quiet enough to time anything? Looks at other processes for a second."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

BUSY_PERCENT = 10.0


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """CPU share of one process; 100 is one core."""

    pid: int
    name: str
    percent: float


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Other processes above 10 % CPU, busiest first, and the load averages over 1, 5 and 15 minutes."""

    busy: tuple[ProcessLoad, ...]
    average: tuple[float, float, float]

    def as_dict(self) -> dict:
        """For the `load` of a result's meta data."""
        return {"busy": [asdict(process) for process in self.busy], "average": list(self.average)}


def machine_load(sample: Callable[[], Sequence[ProcessLoad]] | None = None) -> MachineLoad:
    """The load right now; takes a second. `sample` replaces the look at the process table."""
    processes = (sample or sample_processes)()
    busy = [p for p in processes if p.percent > BUSY_PERCENT and p.pid != os.getpid()]
    busy.sort(key=lambda process: -process.percent)
    return MachineLoad(tuple(busy), os.getloadavg())


def check_idle(load: MachineLoad, *, allow_busy: bool = False) -> None:
    """Raises ValueError that names the busiest other process, unless `allow_busy`."""
    if load.busy and not allow_busy:
        worst = load.busy[0]
        raise ValueError(
            f"process {worst.pid} ({worst.name}) takes {worst.percent:.0f} % CPU, so wall-clock figures "
            "would mean nothing; stop it or pass --allow-busy (allow_busy=True)"
        )


def sample_processes(seconds: float = 1.0) -> list[ProcessLoad]:
    """CPU share of every visible process over `seconds`.

    Raises ValueError if psutil is not installed.
    """
    try:
        import psutil
    except ImportError as error:
        raise ValueError("the busy check needs psutil; install it with: pip install 'dlmspec[bench]'") from error
    processes = list(psutil.process_iter(["name"]))
    for process in processes:
        _percent(process, psutil.Error)
    time.sleep(seconds)
    found = []
    for process in processes:
        percent = _percent(process, psutil.Error)
        if percent is not None:
            found.append(ProcessLoad(process.pid, process.info["name"] or "?", percent))
    return found


def _percent(process, unreadable: type[Exception]) -> float | None:
    """CPU per cent since the last call; None for a process that has ended or may not be read."""
    try:
        return process.cpu_percent(None)
    except unreadable:
        return None
