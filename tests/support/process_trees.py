"""Processes that a command has started, in whatever session, and after whatever end."""

import uuid
from collections.abc import Iterable
from contextlib import suppress

import psutil

from support.waiting import wait_until

_VARIABLE = "IKEBANA_TEST_PROCESSES"


class Family:
    """A command and all that it starts, known by a variable of their environment."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex

    @property
    def environment(self) -> dict[str, str]:
        """What the command has to be started with."""
        return {_VARIABLE: self._mark}

    def alive(self) -> list[psutil.Process]:
        """All that run now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ours = process.environ().get(_VARIABLE) == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill(self) -> None:
        """Kill all, and return when nothing is left."""
        wait_until(lambda: not kill(self.alive()), 30, "the end of all processes of a command")


def kill(processes: Iterable[psutil.Process]) -> bool:
    """Kill processes; whether there were any."""
    any_there = False
    for process in processes:
        any_there = True
        with suppress(psutil.Error):
            process.kill()
    return any_there


def name_of(process: psutil.Process) -> str:
    """The name of a process, empty when it is gone."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""
