"""How a run is asked to end: the first signal asks, the second one ends it at once.

Before its query has begun there is nothing to finish, and the first signal ends the
run where it stands.  All that a start writes can be cut off anywhere.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """A run was asked to end at a moment when there was nothing to finish."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopping:
    """Whether a run has been asked to end, and what a signal does to it now."""

    def __init__(self, *, patient: bool = True) -> None:
        """One that is not patient never lets anything be finished."""
        self.asked = False
        self._may_be_patient = patient
        self._patient = False

    def finish_first(self) -> None:
        """From here on the first signal only asks, and `asked` has to be looked at."""
        self._patient = self._may_be_patient

    def at_once(self) -> None:
        """From here on the first signal raises `Stopped`."""
        self._patient = False

    def signalled(self, number: int) -> None:
        """Answer a signal."""
        if self.asked:
            raise SystemExit(128 + number)
        self.asked = True
        if not self._patient:
            raise Stopped(number)


@contextmanager
def on_signals(*, patient: bool = True) -> Iterator[Stopping]:
    """Answer SIGTERM and SIGINT for the length of a `with` block in the main thread."""
    stopping = Stopping(patient=patient)
    before = {
        number: signal.signal(number, lambda number, _: stopping.signalled(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
