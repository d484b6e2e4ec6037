"""A TCP proxy on the loopback interface whose link can be cut, slow, half open or reset."""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Literal

from chaos.looped import Looped

State = Literal["open", "cut", "half-open", "slow", "delay", "refused", "reset"]
_PIECE = 1 << 14


class Proxy(Looped):
    """Passes connections to `port` on to `target`, as its state says.

    * `cut`: nothing comes through; when it is over, what was sent meanwhile does.
    * `half-open`: connections are made and what is sent vanishes; such connections are reset
      when it is over, as their streams have a gap.
    * `slow`: `rate` bytes a second each way; `delay`: each piece takes `delay_s` longer.
    * `refused`: nobody listens, and open connections end; `reset`: connections are made and reset.
    """

    def __init__(
        self,
        port: int,
        target: int,
        rate: int = 20_000,
        delay_s: float = 0.5,
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__()
        self.port = port
        self._host = host
        self._target = target
        self._rate = rate
        self._delay_s = delay_s
        self._state: State = "open"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._gapped: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    def become(self, state: State) -> None:
        """Change the state of the link."""
        self._call(self._become(state))

    async def _become(self, state: State) -> None:
        self._state = state
        (self._flows.clear if state == "cut" else self._flows.set)()
        if state in ("refused", "reset"):
            _reset(self._writers)
        if state == "refused":
            await self._silence()
        else:
            await self._listen()
        if state == "open":
            _reset(self._gapped)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, self._host, self.port)

    async def _silence(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end(self) -> None:
        await self._silence()
        self._flows.set()
        _reset(self._writers)
        here = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not here]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state == "reset":
            _reset({writer})
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset({writer})
            return
        ends = {writer, back}
        self._writers |= ends
        # The end of either direction is that of both.
        ways = [
            asyncio.ensure_future(way)
            for way in (self._pass(reader, back, ends), self._pass(there, writer, ends))
        ]
        # Streams of asyncio complain of handlers that were cancelled.
        with suppress(asyncio.CancelledError):
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        try:
            for way in ways:
                way.cancel()
        finally:
            self._writers -= ends
            self._gapped -= ends
            for end in ends:
                end.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                if self._state == "delay":
                    await asyncio.sleep(self._delay_s)
                elif self._state == "slow":
                    await asyncio.sleep(len(piece) / self._rate)
                await self._flows.wait()
                if self._state == "half-open":
                    self._gapped |= ends
                if self._gapped & ends:
                    continue
                writer.write(piece)
                await writer.drain()


def _reset(writers: set[asyncio.StreamWriter]) -> None:
    """End connections with a reset, which discards what is on its way."""
    for writer in list(writers):
        at: socket.socket | None = writer.get_extra_info("socket")
        if at is not None:
            with suppress(OSError):
                at.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
