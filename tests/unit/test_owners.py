"""What a worker hears of a process that owns shards: errors as they were raised there."""

import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import psutil
import pytest

from ikebana import Input, Output, Plan, Upsert
from ikebana.arrangements.files import file_system
from ikebana.errors import CheckpointError, LostError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.spark import session
from ikebana.processor.spark.failures import own_error_in
from ikebana.processor.spark.source_task import Share, SourceConfig
from ikebana.processor.spark.workers import left_rows, network, serving
from ikebana.processor.spark.workers.network import Ask, Done, Pickled, Raised, WorkerAddress
from ikebana.processor.spark.workers.owners import HostAddress, read, run
from ikebana.processor.spark.workers.starting import Workers
from ikebana.processor.topics.source_offset import SourceOffset
from support.process_trees import name_of
from support.waiting import wait_until


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostAddress]:
    """One owner."""
    folder = tmp_path_factory.mktemp("owners")
    made = Workers(folder, None, ["ikebana.processor.spark.workers.serving"], owners=1)
    yield made.address
    made.end()


class Called:
    """What calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self._call


def raised(owners: HostAddress, job: object) -> list[str]:
    """What Spark's worker would tell of the error that a job raises in its owner."""
    pickled = Pickled.of(job)
    with pytest.raises(Exception) as found:  # noqa: PT011 -- its class is made of names
        run({3: owners}, pickled, {3: None}, {3: []})
    return traceback.format_exception(found.value)


def test_an_error_in_an_owner_is_told_as_it_would_be_in_a_worker(owners: HostAddress) -> None:
    """Spark passes on the text alone, in which the error and its remedy are found again."""
    told = raised(owners, Called(int, "no number"))
    ours = raised(owners, Called(file_system, "nowhere://at/all"))

    assert told[-1] == "ValueError: invalid literal for int() with base 10: 'no number'\n"
    assert any("in _opened" in line for line in told)
    assert isinstance(own_error_in("".join(ours)), CheckpointError)
    assert 'cannot use checkpoint location "nowhere://at/all"' in str(own_error_in("".join(ours)))


def test_an_owner_that_has_told_an_error_serves_the_next_request(owners: HostAddress) -> None:
    """A job that cannot be opened does not stay, either."""
    first = raised(owners, Called(int, "a"))[-1]
    second = raised(owners, Called(int, "b"))[-1]

    assert ("'a'" in first, "'b'" in second) == (True, True)


def test_all_owners_have_answered_before_an_error_is_raised(tmp_path: Path) -> None:
    """What Spark then repeats finds the other shards committed, and no batch under way."""
    answered: list[int] = []

    def own(number: int, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            network.receive(connection, Ask)
            if number == 0:
                answer: msgspec.Struct = Raised("builtins", "ValueError", "no", "")
            else:
                wait_until(lambda: 0 in answered, 30, "the other owner's answer")
                answer = Done(b"state", b"commit")
            # Before it is sent: who has got it may look at once.
            answered.append(number)
            network.send(connection, answer)

    with ExitStack() as open_here:
        owned = HostAddress(str(tmp_path), 2)
        for number in range(owned.owners):
            listener = open_here.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(owned.address(number))
            listener.listen()
            thread = Thread(target=own, args=(number, listener))
            thread.start()
            open_here.callback(thread.join)

        with pytest.raises(Exception, match=r"^no$"):
            run({0: owned, 1: owned}, Pickled(b"", ""), {0: None, 1: None}, {0: [], 1: []})

        assert answered == [0, 1]


@pytest.mark.parametrize(
    ("master", "shards", "expected"),
    [
        pytest.param("local[2]", 4, 4, id="one a shard"),
        pytest.param("local[2]", 64, 4, id="twice the slots"),
        pytest.param("local[3,8]", 64, 6, id="with a number of attempts"),
        pytest.param("local", 8, 2, id="one slot"),
        pytest.param("local[2]", 1, 1, id="one shard"),
        pytest.param("k8s://there", 64, 2, id="executors of one core"),
    ],
)
def test_there_are_owners_for_the_tasks_that_run_at_a_time(
    master: str, shards: int, expected: int
) -> None:
    """Twice as many, so that two tasks seldom wait for one owner."""
    settings = Settings("here", {"bootstrap.servers": "b:1"}, shards=shards, master=master)

    assert session.owners(settings) == expected


def test_an_executor_may_have_several_cores() -> None:
    """As many as Spark's setting says."""
    spark = {"spark.executor.cores": "3"}
    settings = Settings(
        "here", {"bootstrap.servers": "b:1"}, shards=64, master="k8s://there", spark=spark
    )

    assert session.owners(settings) == 6


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_the_shards_of_a_group_have_different_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """And so have groups of one shard each: those of an executor run side by side."""
    asked: dict[int, WorkerAddress] = {}

    def note(owner: WorkerAddress, job: Pickled, shard: int, *rest: object) -> Done:
        asked[shard] = owner
        return Done(b"", b"")

    monkeypatch.setattr("ikebana.processor.spark.workers.owners._run", note)
    owners = HostAddress(str(tmp_path), 4)
    for group in range(groups):
        shards = range(group, 4, groups)
        rows: dict[int, list[bytes]] = {shard: [] for shard in shards}
        run(dict.fromkeys(shards, owners), Pickled(b"", ""), dict.fromkeys(shards), rows)
        assert len({asked[shard] for shard in shards}) == len(shards)

    assert groups < 4 or len({*asked.values()}) == 4


def test_nobody_is_reached_where_there_are_no_owners(tmp_path: Path) -> None:
    """Such as after the end of their host."""
    gone = HostAddress(str(tmp_path), 2)

    assert run({0: gone}, Pickled(b"", ""), {0: None}, {0: []}) == {0: None}


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Workers]:
    """Two processes that read batches."""
    made = Workers(
        tmp_path, None, ["ikebana.processor.spark.workers.serving"], owners=1, readers=2
    )
    yield made
    made.end()


def of(workers: Workers) -> list[WorkerAddress]:
    """The readers of a host."""
    return [workers.address.reader(at) for at in range(workers.address.readers)]


def source(folder: str) -> Pickled:
    """The configuration of a source that leaves large rows in a folder."""
    plan = Plan("p", (Input("a", ("t",)),), (Upsert("u", "a"),), (Output("o", "u", "out"),))
    start = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    config = SourceConfig(
        plan=plan,
        reading_kafka={"bootstrap.servers": "127.0.0.1:1"},
        start=start,
        groups=[0, 0],
        readers=2,
        max_records=10,
        heartbeat_s=0.0,
        max_batch_s=300.0,
        stop="",
        incarnation=1,
        rows_folder=folder,
    )
    return Pickled.of(config)


def share(*rows: tuple[int, bytes]) -> Share:
    """A share that has such rows to pass on, and nothing to read."""
    return Share(list(rows), [], [], [])


def test_readers_read_side_by_side_and_leave_what_is_large(
    readers: Workers, tmp_path: Path
) -> None:
    """Rows come in the order of the shares, whoever has read them; a third share waits."""
    rows = tmp_path / "rows"
    rows.mkdir()
    config, large = source(str(rows)), b"\x95" + b"r" * 20_000
    shares = [share((0, b"\x91a"), (1, b"\x91b")), share((1, large)), share((0, b"\x91c"))]

    for _ in range(2):
        found = read(of(readers), config, 7, shares)

        assert found is not None
        assert [shard for shard, _ in found] == [0, 1, 1, 0]
        assert max(len(row) for _, row in found) < 1_000
        given = [b"\x91a", b"\x91b", large, b"\x91c"]
        assert [*left_rows.resolve(row for _, row in found)] == given
    names = {name_of(each) for each in psutil.Process(readers.server).children()}
    assert names == {serving.READER_NAME}


def test_an_error_in_a_reader_is_raised_and_the_next_request_is_served(
    readers: Workers, tmp_path: Path
) -> None:
    """What was asked for is in the text, as of an owner's errors."""
    config = source(str(tmp_path))

    with pytest.raises(Exception, match="invalid literal") as found:
        read(of(readers), config, 7, [Called(int, "no number"), share((0, b"\x91"))])

    assert type(found.value).__name__ == "ValueError"
    assert read(of(readers), config, 7, [share((0, b"\x91"))]) == [(0, b"\x91")]


def test_a_reader_that_is_lost_is_told_and_replaced(readers: Workers, tmp_path: Path) -> None:
    """Whoever asks next is served by another one."""
    config = source(str(tmp_path))

    with pytest.raises(LostError, match="the process that reads was lost"):
        read(of(readers), config, 7, [Called(signal.raise_signal, signal.SIGKILL)])

    assert read(of(readers), config, 7, [share((1, b"\x91"))]) == [(1, b"\x91")]


def test_nobody_reads_where_there_are_no_readers(tmp_path: Path) -> None:
    """Tasks of Spark do, then."""
    config = source(str(tmp_path))

    assert read([], config, 7, [share()]) is None
    assert read([HostAddress(str(tmp_path), 1, 2).reader(0)], config, 7, [share()]) is None
