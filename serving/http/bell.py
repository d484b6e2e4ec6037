"""Wake the coroutines of a server after a change in another thread."""

import asyncio


class Bell:
    """Rung from any thread, heard by all that wait at that moment; made in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all that wait."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def next(self) -> asyncio.Event:
        """Return an event that is set at the next ring after this call.

        Whoever checks a condition calls this before, so that no change is missed between.
        """
        return self._event

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()
