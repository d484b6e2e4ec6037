"""Stop a run by signals: the first one asks it to end, the second one ends it at once.

Before the query has begun there is nothing to finish, so the first signal ends the run at once.
A start may be interrupted anywhere, also while it writes.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """A run was asked to end while there was nothing to finish."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopping:
    """Keeps whether a run has been asked to end, and whether a signal ends it at once."""

    def __init__(self, *, patient: bool = True) -> None:
        """Without `patient`, the first signal always ends the run at once."""
        self.asked = False
        self.by_signal = False
        self._may_be_patient = patient
        self._patient = False
        self._tell: Callable[[], None] = lambda: None

    def when_asked(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the run is asked to end."""
        self._tell = tell

    def finish_first(self) -> None:
        """From now on the first signal only sets `asked`, which the run has to check."""
        self._patient = self._may_be_patient

    def at_once(self) -> None:
        """From now on the first signal raises `Stopped`."""
        self._patient = False

    def ask(self) -> None:
        """Ask the run to end when it has finished its batch; from any thread."""
        self.asked = True
        self._tell()

    def signalled(self, number: int) -> None:
        """Handle a signal."""
        if self.by_signal:
            raise SystemExit(128 + number)
        self.asked = self.by_signal = True
        self._tell()
        if not self._patient:
            raise Stopped(number)


@contextmanager
def on_signals(*, patient: bool = True) -> Iterator[Stopping]:
    """Handle SIGTERM and SIGINT during a `with` block in the main thread."""
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
