"""The proxy does to connections what its states say."""

import socket
import threading
from collections.abc import Iterator

import pytest

from chaos.proxy import Proxy
from ikebana.processor.kafka.broker import free_port


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while piece := connection.recv(100):
                    connection.sendall(piece)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    """A proxy before that server."""
    with Proxy(free_port(), echo, rate=1000, delay_s=0.2) as made:
        yield made


def connected(proxy: Proxy) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", proxy.port), 10)
    assert asked(made, b"first") == b"first"
    return made


def asked(connection: socket.socket, what: bytes, within_s: float = 10) -> bytes | None:
    """Send something; what comes back, or None if nothing does."""
    connection.settimeout(within_s)
    try:
        connection.sendall(what)
        return connection.recv(1000)
    except TimeoutError:
        return None


def test_a_cut_link_gives_everything_when_it_is_whole_again(proxy: Proxy) -> None:
    with connected(proxy) as one:
        proxy.become("cut")
        assert asked(one, b"late", 0.2) is None
        proxy.become("open")
        one.settimeout(10)
        assert one.recv(1000) == b"late"


def test_what_was_sent_into_a_half_open_link_is_lost_and_the_connection_too(proxy: Proxy) -> None:
    with connected(proxy) as one:
        proxy.become("half-open")
        assert asked(one, b"lost", 0.2) is None
        with socket.create_connection(("127.0.0.1", proxy.port), 10) as another:
            assert asked(another, b"lost", 0.2) is None
        proxy.become("open")
        with pytest.raises(ConnectionResetError):
            asked(one, b"more")
    with connected(proxy):
        pass


def test_a_link_that_is_reset_or_refused_ends_its_connections(proxy: Proxy) -> None:
    with connected(proxy) as one:
        proxy.become("reset")
        with pytest.raises(ConnectionResetError):
            asked(one, b"?")
        with (
            pytest.raises(ConnectionResetError),
            socket.create_connection(("127.0.0.1", proxy.port), 10) as another,
        ):
            asked(another, b"?")
        proxy.become("refused")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), 10)
        proxy.become("open")
    with connected(proxy):
        pass


@pytest.mark.parametrize("state", ["slow", "delay"])
def test_a_slow_link_takes_its_time(proxy: Proxy, state: str) -> None:
    with connected(proxy) as one:
        proxy.become(state)  # type: ignore[arg-type]
        assert asked(one, b"x" * 100, 0.1) is None
        one.settimeout(10)
        assert one.recv(1000) == b"x" * 100
