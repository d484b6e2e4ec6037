"""The proxy that answers in place of an object store does what scenarios rely on."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from chaos.http_faults import Fault, FaultyHttp
from ikebana.processor.kafka.broker import free_port

LISTING = "/state?list-type=2"


class Store(BaseHTTPRequestHandler):
    """Keeps what is put; each listing has another number."""

    protocol_version = "HTTP/1.1"
    kept: dict[str, bytes]
    listings: Iterator[int]

    def do_PUT(self) -> None:
        self.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_GET(self) -> None:
        is_listing = self.path == LISTING
        self._answer(b"%d" % next(self.listings) if is_listing else self.kept[self.path])

    def log_message(self, *_: object) -> None: ...

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def store() -> Iterator[tuple[FaultyHttp, dict[str, bytes]]]:
    kept: dict[str, bytes] = {}
    handler = type("Kept", (Store,), {"kept": kept, "listings": count()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with FaultyHttp(free_port(), server.server_address[1]) as proxy:
                yield proxy, kept
        finally:
            server.shutdown()


def ask(proxy: FaultyHttp, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    asking = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    try:
        asking.request(method, path, body, {"Expect": "100-continue"} if body else {})
        answer = asking.getresponse()
        return answer.status, answer.read()
    finally:
        asking.close()


def test_requests_pass_as_they_are() -> None:
    """A body that waits to be asked for, too."""
    with store() as (proxy, kept):
        assert ask(proxy, "PUT", "/state/a", b"one") == (200, b"")
        assert ask(proxy, "GET", "/state/a") == (200, b"one")
        assert kept == {"/state/a": b"one"}
        assert proxy.done == 0


@pytest.mark.parametrize(("fault", "status"), [("throttled", 503), ("failing", 500)])
def test_what_a_store_refuses_it_has_not_done(fault: Fault, status: int) -> None:
    """It answers as a store does, with its code."""
    with store() as (proxy, kept):
        proxy.become(fault)
        found, text = ask(proxy, "PUT", "/state/a", b"one")
        proxy.become("none")

        assert found == status
        assert b"<Code>" in text
        assert kept == {}
        assert ask(proxy, "PUT", "/state/a", b"one") == (200, b"")


@pytest.mark.parametrize(("fault", "is_done"), [("resetting", False), ("losing", True)])
def test_a_connection_may_end_before_and_after_the_store_has_done_it(
    fault: Fault,
    is_done: bool,  # noqa: FBT001
) -> None:
    """The client cannot tell them apart."""
    with store() as (proxy, kept):
        proxy.become(fault)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(proxy, "PUT", "/state/a", b"one")

        assert bool(kept) == is_done


def test_listings_stay_what_they_were() -> None:
    """Objects are read as they are meanwhile."""
    with store() as (proxy, _):
        proxy.become("stale")
        assert [ask(proxy, "GET", LISTING)[1] for _ in range(3)] == [b"0"] * 3
        ask(proxy, "PUT", "/state/a", b"two")
        assert ask(proxy, "GET", "/state/a")[1] == b"two"
        proxy.become("none")
        assert ask(proxy, "GET", LISTING)[1] == b"3"
