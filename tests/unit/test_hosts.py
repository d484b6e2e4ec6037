"""Hosts of several executors: who may ask them, which has which shards, and rows between them."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import LostError
from ikebana.processor.spark.workers import left_rows, network, owners
from ikebana.processor.spark.workers.network import StrangerError
from ikebana.processor.spark.workers.owners import HostAddress, Placement, place_shards

ANYWHERE = ("127.0.0.1", 0)


PLAIN, ENCRYPTING = (network.new_secret(encrypts=encrypts) for encrypts in (False, True))


@pytest.fixture(params=[PLAIN, ENCRYPTING], ids=["plain", "encrypted"])
def listener(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[socket.socket]:
    """A port of a process that knows the secret of a run."""
    monkeypatch.setenv(network.VARIABLE, request.param)
    with closing(network.listening(ANYWHERE)) as found:
        yield found


def address(listener: socket.socket) -> tuple[str, int]:
    return "127.0.0.1", listener.getsockname()[1]


def test_both_ends_prove_that_they_know_the_secret(listener: socket.socket) -> None:
    """What is sent then arrives."""
    heard = []

    def serve() -> None:
        with network.accepted(listener) as connection:
            heard.append(connection.recv(5))

    serving = threading.Thread(target=serve)
    serving.start()
    with network.connected(address(listener)) as connection:
        connection.sendall(b"hello")
    serving.join(30)

    assert heard == [b"hello"]


def test_a_run_that_encrypts_sends_nothing_that_others_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody between both ends sees each byte that passes."""
    monkeypatch.setenv(network.VARIABLE, ENCRYPTING)
    seen = []

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        while content := source.recv(1 << 16):
            seen.append(content)
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)

    with closing(network.listening(ANYWHERE)) as far, closing(network.listening(ANYWHERE)) as near:

        def relay() -> None:
            client, _ = near.accept()
            with client, socket.create_connection(address(far)) as server:
                back = threading.Thread(target=pass_on, args=(server, client))
                back.start()
                pass_on(client, server)
                back.join(30)

        def answer() -> None:
            with network.accepted(far) as connection:
                connection.sendall(network.received(connection, 6))

        threads = [threading.Thread(target=each) for each in (relay, answer)]
        for each in threads:
            each.start()
        with network.connected(address(near)) as connection:
            connection.sendall(b"a row!")
            assert network.received(connection, 6) == b"a row!"
        for each in threads:
            each.join(30)

    assert sum(map(len, seen)) > 500
    assert b"a row!" not in b"".join(seen)


@pytest.mark.parametrize("encrypts", [False, True])
def test_a_client_of_another_run_is_a_stranger(listener: socket.socket, *, encrypts: bool) -> None:
    """Whether it encrypts or not, and whether this run does."""
    ours, theirs = os.environ[network.VARIABLE], network.new_secret(encrypts=encrypts)
    client = (
        "import os, sys; from ikebana.processor.spark.workers import network\n"
        "try: network.connected(('127.0.0.1', int(sys.argv[1])))\n"
        "except OSError as error: print(type(error).__name__)"
    )
    environment = {**os.environ, network.VARIABLE: theirs}
    assert ours != theirs
    with subprocess.Popen(
        [sys.executable, "-c", client, str(address(listener)[1])],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        with pytest.raises(OSError):  # noqa: PT011 -- the system's, or that of a stranger
            network.accepted(listener)
        output, _ = running.communicate(timeout=60)
    assert output.strip() in {"StrangerError", "ConnectionResetError", "BrokenPipeError"}


@pytest.mark.parametrize("said", [b"", b"x" * 64, b"short"])
def test_who_does_not_know_the_secret_is_not_heard(listener: socket.socket, said: bytes) -> None:
    """Whatever it says in its place; the next one is served."""
    with socket.create_connection(address(listener), 30) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        with pytest.raises(StrangerError):
            network.accepted(listener)


def test_it_is_known_whether_anybody_listens(listener: socket.socket) -> None:
    """A host that is busy is there; one that is gone is not waited for."""
    at = address(listener)
    assert network.is_heard(at)
    listener.close()
    assert not network.is_heard(at)


def test_who_listens_without_the_secret_is_told_nothing(listener: socket.socket) -> None:
    """A process that has taken the port of a host gets no rows."""

    def pretend() -> None:
        connection, _ = listener.accept()
        # The other side may hang up at each of the stranger's words.
        with connection, suppress(ConnectionError):
            connection.sendall(b"c" * 32)
            connection.recv(64)
            connection.sendall(b"p" * 32)

    pretending = threading.Thread(target=pretend)
    pretending.start()
    with pytest.raises(StrangerError):
        network.connected(address(listener))
    pretending.join(30)


@pytest.mark.parametrize(
    "owners",
    [
        HostAddress("/tmp/a b", 2, 1),
        HostAddress("10.0.0.1", 2, 1, (7080, 7081, 7082)),
        HostAddress("/x", 0),
    ],
)
def test_a_host_is_read_as_it_is_written(owners: HostAddress) -> None:
    """In a variable of the environment, and with a batch."""
    assert HostAddress.read_from(owners.text) == owners


names = st.sets(st.sampled_from("abcdefg"))


@given(shards=st.integers(1, 20), histories=st.lists(names, min_size=1, max_size=5))
def test_shards_lie_evenly_and_stay_where_they_can(shards: int, histories: list[set[str]]) -> None:
    """Each host has one more than another at most, and gives up no more than it has too many."""
    last: Placement | None = None
    for hosts in histories:
        now = place_shards(shards, {name: f"of {name}" for name in hosts}, last)
        if not hosts:
            assert now == Placement({}, [])
            continue
        counts = [now.shards.count(name) for name in hosts]
        assert (sum(counts), max(counts) - min(counts) <= 1) == (shards, True)
        if last is not None and last.shards:
            for name in hosts:
                had = {at for at, of in enumerate(last.shards) if of == name}
                kept = {at for at in had if now.shards[at] == name}
                assert len(kept) >= min(len(had), shards // len(hosts))
        last = now


def test_the_readers_of_different_hosts_stand_beside_each_other() -> None:
    """So that two shares are read on two of them."""
    hosts = {"a": "1 2 x:1,2,3", "b": "1 1 y:4,5"}
    told = owners.encoded(Placement(hosts, ["b", "a"]))

    assert owners.readers_of(told) == [("x", 2), ("y", 5), ("x", 3)]
    assert owners.hosts_of(told) == {
        0: HostAddress("y", 1, 1, (4, 5)),
        1: HostAddress("x", 1, 2, (1, 2, 3)),
    }


def test_rows_of_batches_before_are_removed(tmp_path: Path) -> None:
    """Those of the batch itself stay: it may be tried again."""
    large = [(0, b"\x95" + b"r" * 20_000)]
    (before,) = left_rows.leave_large_rows([large], str(tmp_path), 9, "h:1")
    (now,) = left_rows.leave_large_rows([large], str(tmp_path), 10, "h:1")
    left_rows.forget_before(str(tmp_path), 10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(left_rows.VARIABLE, str(tmp_path))
        assert [*left_rows.resolve([now[1]])] == [large[0][1]]
        with pytest.raises(LostError, match="are gone"):
            next(left_rows.resolve([before[1]]))
    left_rows.forget_before("", 10)


def test_rows_of_another_host_are_fetched_or_lost_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that gets the error is tried again, and the batch is read anew if that fails."""
    monkeypatch.setenv(network.VARIABLE, "of this run")
    with closing(network.listening(ANYWHERE)) as gone:
        host = f"127.0.0.1:{gone.getsockname()[1]}"
    (place,) = left_rows.leave_large_rows([[(0, b"\x95" + b"r" * 20_000)]], str(tmp_path), 1, host)

    with pytest.raises(LostError, match=f"{host} is not reached"):
        next(left_rows.resolve([place[1]]))
