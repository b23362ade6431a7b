"""Where an interrupted training of a drafter goes on: one file, matched to the plan, the recording and the start."""

import zlib
from pathlib import Path

import torch
from torch import Tensor, nn

from dlmspec.atomic import replacing


class Checkpoint:
    """The file of one run; `model` is as the run starts, so that another start or architecture is another run."""

    def __init__(self, path: Path, plan: object, records: dict[str, Tensor], model: nn.Module) -> None:
        self.path = path
        checksum = 0
        for tensor in (records["place"], records["committed"], *model.state_dict().values()):
            checksum = zlib.crc32(tensor.contiguous().numpy().tobytes(), checksum)
        self.run = f"{plan!r} {checksum:08x}"

    def resume(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """The steps already done, loaded into model and optimizer; 0 if the file is none or another run's.

        Raises ValueError if the file is damaged.
        """
        if not self.path.exists():
            return 0
        try:
            state = torch.load(self.path, weights_only=True)
            run = state.get("run")
        except Exception as error:  # pickle and torch raise many kinds, with pages of advice
            raise ValueError(f"the checkpoint {self.path} is damaged; delete it to start afresh") from error
        if run != self.run:
            return 0
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["step"]

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        state = {"run": self.run, "step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        with replacing(self.path) as (temporary,):
            torch.save(state, temporary)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
