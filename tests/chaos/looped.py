"""A server of the tests that runs in an event loop of its own, in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

_WITHIN_S = 30


class Looped:
    """Listens within a `with` block; a server says what `_listen` and `_end` do."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_WITHIN_S)

    async def _listen(self) -> None:
        raise NotImplementedError

    async def _end(self) -> None:
        raise NotImplementedError
