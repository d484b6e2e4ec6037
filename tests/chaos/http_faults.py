"""A proxy that speaks HTTP, and answers some requests as an object store does on a bad day."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Literal

from chaos.looped import Looped

Fault = Literal["none", "throttled", "failing", "resetting", "losing", "late", "stale"]
# What it says in place of the store, by fault.
_SAYS = {
    "throttled": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "failing": ("500 Internal Server Error", "InternalError", "We encountered an error."),
}
_LATE_S = 1.0
_LONGEST_HEAD = 1 << 20


class FaultyHttp(Looped):
    """Passes requests to `port` on to `target`, but for a share of them.

    * `throttled`, `failing`: the store answers 503 or 500, and has done nothing.
    * `resetting`: the connection ends before the store has heard of it; `losing`: after it has
      done it, in place of the answer.
    * `late`: the answer takes a second longer.
    * `stale`: a listing is the first one of the same request since the fault began.
    """

    def __init__(self, port: int, target: int, seed: int = 1) -> None:
        super().__init__()
        self.port = port
        self.done = 0
        """How many requests it has not passed on as they were."""
        self._target = target
        self._choice = Random(seed)
        self._fault: Fault = "none"
        self._share = 1.0
        self._listings: dict[str, bytes] = {}

    def become(self, fault: Fault, share: float = 1.0) -> None:
        """Do so to a share of all requests from now on."""

        async def change() -> None:
            self._listings.clear()
            self._fault, self._share = fault, share

        self._call(change())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=_LONGEST_HEAD
        )

    async def _end(self) -> None:
        self._server.close()
        here = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not here]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Streams of asyncio complain of handlers that were cancelled.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            there, back = await asyncio.open_connection(
                "127.0.0.1", self._target, limit=_LONGEST_HEAD
            )
            try:
                while await self._one(reader, writer, there, back):
                    pass
            finally:
                back.close()
        writer.close()

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:
        """Pass on one request and its answer; whether another one may come."""
        head = _Head(await reader.readuntil(b"\r\n\r\n"))
        if "expect" in head.fields:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(reader, head)
        fault = self._chosen(head)
        if fault in _SAYS:
            writer.write(_refusal(fault, head))
            await writer.drain()
            return True
        told = b""
        if fault != "resetting":
            back.write(head.without("expect") + body)
            await back.drain()
            told = await _answer(there, head)
        if fault in ("resetting", "losing"):
            writer.transport.abort()
            return False
        if fault == "late":
            await asyncio.sleep(_LATE_S)
        elif fault == "stale":
            told = self._listings.setdefault(head.line, told)
        writer.write(told)
        await writer.drain()
        return True

    def _chosen(self, head: "_Head") -> Fault:
        fault = self._fault
        if fault == "stale" and not (head.method == "GET" and "list-type=2" in head.line):
            return "none"
        if fault == "none" or self._choice.random() >= self._share:
            return "none"
        self.done += 1
        return fault


@dataclass
class _Head:
    """The first line and the fields of a request or an answer."""

    raw: bytes

    def __post_init__(self) -> None:
        lines = self.raw.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.method = self.line.partition(" ")[0]
        parted = (line.partition(":") for line in lines[1:] if line)
        self.fields = {name.strip().lower(): value.strip() for name, _, value in parted}

    def without(self, name: str) -> bytes:
        """The head without a field."""
        lines = self.raw.split(b"\r\n")
        kept = [line for line in lines if not line.lower().startswith(name.encode() + b":")]
        return b"\r\n".join(kept)


async def _body(reader: asyncio.StreamReader, head: _Head) -> bytes:
    """What follows a head, as it came."""
    if head.fields.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(head.fields.get("content-length", 0)))
    found = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        found += line + await reader.readexactly(size + 2)
        if size == 0:
            return found


async def _answer(there: asyncio.StreamReader, asked: _Head) -> bytes:
    head = _Head(await there.readuntil(b"\r\n\r\n"))
    status = head.line.split(" ")[1]
    if status.startswith("1"):
        return await _answer(there, asked)
    is_empty = asked.method == "HEAD" or status in ("204", "304")
    return head.raw if is_empty else head.raw + await _body(there, head)


def _refusal(fault: Fault, head: _Head) -> bytes:
    status, code, words = _SAYS[fault]
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{words}</Message></Error>"
    fields = f"Content-Type: application/xml\r\nContent-Length: {len(text)}\r\n"
    body = "" if head.method == "HEAD" else text
    return f"HTTP/1.1 {status}\r\n{fields}\r\n{body}".encode()
