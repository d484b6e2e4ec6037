"""Clocks that jump, in all processes of the run but the broker's.

A small library of our own moves the wall clock: libfaketime 0.9.10 moves those of intervals, too,
and if it is told not to, Python's `time.sleep` fails.
"""

import shutil
import subprocess
from pathlib import Path

from chaos.life import Life
from chaos.runs import Wrong
from chaos.scenario import Scenario, scenario

_JUMPED_S = 5.0


def environment(folder: Path) -> dict[str, str]:
    """Build the library; what processes have to be started with whose clock a file moves."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Wrong("there is no C compiler for the library that moves clocks")
    library, clock = folder / "clock.so", folder / "clock"
    source = Path(__file__).with_name("clock.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    clock.write_text("0\n")
    return {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)}


def _jump(name: str, does: str, *seconds: int) -> Scenario:
    def act(life: Life) -> None:
        if "CHAOS_CLOCK" not in life.environment:
            life.environment |= environment(life.folder)
            life.kill()
            life.start()
            life.goes_on()
        for jump in seconds:
            (life.folder / "clock").write_text(f"{jump}\n")
            life.wait(_JUMPED_S)
        (life.folder / "clock").write_text("0\n")

    act.__name__ = name
    return scenario("clock", does=f"the clock {does}", ends="the right time again")(act)


back = _jump("clock_back", "goes back an hour", -3600)
forth = _jump("clock_forth", "goes forth an hour, and comes back", 3600)
around = _jump("clock_around", "goes back and forth several times", -60, 60, -3600, 30)
