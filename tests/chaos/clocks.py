"""Clocks that jump, by libfaketime in all processes of the run but the broker."""

from pathlib import Path

from chaos.life import Life, Wrong
from chaos.scenario import Scenario, scenario

_LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"
_JUMPED_S = 5.0


def environment(folder: Path) -> dict[str, str]:
    """What processes have to be started with whose clock a file sets; empty if that cannot be."""
    found = sorted(Path("/").glob(_LIBRARIES.lstrip("/")))
    if not found:
        return {}
    file = folder / "clock"
    file.write_text("+0\n")
    return {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        # Clocks of intervals do not jump, on no machine.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def _jump(name: str, does: str, *seconds: int) -> Scenario:
    def act(life: Life) -> None:
        if not life.environment:
            life.environment = environment(life.folder)
            if not life.environment:
                raise Wrong("there is no libfaketime (Debian's package faketime)")
            life.kill()
            life.start()
            life.goes_on()
        for jump in seconds:
            (life.folder / "clock").write_text(f"{jump:+d}\n")
            life.wait(_JUMPED_S)
        (life.folder / "clock").write_text("+0\n")

    act.__name__ = name
    return scenario("clock", does=f"the clock {does}", ends="the right time again")(act)


back = _jump("clock_back", "goes back an hour", -3600)
forth = _jump("clock_forth", "goes forth an hour, and comes back", 3600)
around = _jump("clock_around", "goes back and forth several times", -60, 60, -3600, 30)
