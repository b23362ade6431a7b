"""Whether a machine is idle enough to time on: catches a busy process not named, and this one taken for another."""

import json
import os

import pytest

from dlmspec.bench.busy import ProcessLoad, check_idle, machine_load


def test_a_busy_machine_is_refused_by_name():
    others = [
        ProcessLoad(71, "shell", 3.0),
        ProcessLoad(72, "trainer", 97.0),
        ProcessLoad(73, "editor", 12.0),
    ]
    load = machine_load(lambda: others)
    assert [process.name for process in load.busy] == ["trainer", "editor"]
    with pytest.raises(ValueError, match=r"72 \(trainer\) takes 97 % CPU.*--allow-busy"):
        check_idle(load)
    check_idle(load, allow_busy=True)
    check_idle(machine_load(lambda: others[:1]))
    assert json.loads(json.dumps(load.as_dict()))["busy"][0]["pid"] == 72


def test_this_process_is_not_another():
    assert machine_load(lambda: [ProcessLoad(os.getpid(), "pytest", 100.0)]).busy == ()
