"""A process that gets no processor does not stand still."""

import os
import subprocess
import sys
from collections.abc import Iterable

import psutil
import pytest

from chaos.starved import Standstill, waited_s
from support.waiting import wait_until


class Machine:
    """A clock, and what one thread has waited for its processor."""

    def __init__(self) -> None:
        self.now = self.waited = 0.0

    def clock(self) -> float:
        return self.now

    def threads(self, _: Iterable[psutil.Process]) -> dict[str, float]:
        return {"one": self.waited, "idle": 5.0}


@pytest.mark.parametrize(
    ("waited_of_ten", "counted"), [(0.0, 10.0), (4.0, 6.0), (10.0, 10 / 12), (30.0, 10 / 12)]
)
def test_seconds_without_a_processor_hardly_count(waited_of_ten: float, counted: float) -> None:
    machine = Machine()
    found = Standstill(lambda: [], machine.clock, machine.threads)
    machine.now, machine.waited = 10.0, waited_of_ten

    assert found.seconds() == pytest.approx(counted)

    machine.now += 10.0
    assert found.seconds() == pytest.approx(counted + 10.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts it")
def test_processes_that_share_a_processor_wait_for_it() -> None:
    """Two that are never idle on one processor wait for it half of the time."""
    busy = [sys.executable, "-c", "while True: pass"]
    processor = {min(os.sched_getaffinity(0))}
    processes = [subprocess.Popen(busy) for _ in range(2)]
    try:
        for each in processes:
            os.sched_setaffinity(each.pid, processor)
        known = [psutil.Process(each.pid) for each in processes]
        wait_until(lambda: sum(waited_s(known).values()) > 0.5, 30, "half a second of waiting")
    finally:
        for each in processes:
            each.kill()
            each.wait()
