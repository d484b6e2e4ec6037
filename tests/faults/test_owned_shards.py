"""Processes that keep shards open, and fight over them: each batch counts once."""

import contextlib
import functools
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from ikebana.errors import FencedError, LostError
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.engine import task
from ikebana.processor.engine.task import Job, OpenShards
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.spark.workers import network, owners
from ikebana.processor.spark.workers.serving import OWNER_NAME
from ikebana.processor.spark.workers.starting import Workers
from support.instances import KEYS, SHARDS, Instances, Way, made
from support.process_trees import name_of
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.kafka]


@pytest.fixture
def instances(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Instances:
    """A checkpoint on which nothing has run."""
    return made(broker, topic_name, tmp_path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Workers]]:
    """Starts hosts of one owner each, and ends them."""
    started = []

    def started_in(name: str) -> Workers:
        folder = tmp_path / name
        folder.mkdir()
        started.append(
            Workers(folder, None, ["ikebana.processor.spark.workers.serving"], owners=1)
        )
        return started[-1]

    yield started_in
    for each in started:
        each.end()


def by_owner(workers: Workers) -> Way:
    """Have an owner run batches, as Spark's workers do."""

    def run(job: Job, shard: int, state: bytes | None, rows: list[bytes]) -> CommitRecord:
        pickled = network.Pickled.of(job)
        done = owners.run({shard: workers.address}, pickled, {shard: state}, {shard: rows})[shard]
        assert done is not None
        found = msgspec.json.decode(done.commit, type=CommitRecord)
        assert done.state == task.encode_state(found.manifest)
        return found

    return run


def owners_of(workers: Workers) -> list[psutil.Process]:
    """The owners that run now."""
    server = psutil.Process(workers.server)
    return [found for found in server.children() if name_of(found) == OWNER_NAME]


def history(batches: int) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
    """What the output holds after so many batches: each key has had each batch's number."""
    return [
        (key, b"%d" % value, {"time": b"%d" % time, "diff": diff})
        for key in KEYS
        for value in range(batches)
        for time, diff in [(value, b"1"), (value + 1, b"-1")]
        if time < batches
    ]


def assert_exact(instances: Instances, batches: int) -> None:
    assert sorted(instances.updates(), key=repr) == sorted(history(batches), key=repr)


def test_two_owners_and_an_old_one_fight_over_a_shard(
    instances: Instances, start: Callable[[str], Workers]
) -> None:
    """R5, R19. What an owner keeps open it loses to whoever fences it, and nothing is doubled.

    The older instance's owner notices when it commits, and then stops without fencing the
    newer one's.  Two owners of one instance can take a shard from each other.
    """
    old, new, other = (by_owner(start(name)) for name in ("old", "new", "other"))
    older = instances.take_over()
    for batch in range(2):
        instances.mint()
        for shard in range(SHARDS):
            instances.run(older, shard, batch, old)
    instances.committed = 1
    newer = instances.take_over()
    instances.mint()
    instances.run(newer, 0, 2, new)
    for shard in range(SHARDS):
        with pytest.raises(Exception, match="taken over by a newer holder") as fenced:
            instances.run(older, shard, 2, old)
        assert f"{type(fenced.value).__module__}.{type(fenced.value).__qualname__}" == (
            f"{FencedError.__module__}.{FencedError.__qualname__}"
        )
        with pytest.raises(Exception, match=r"instance 2 has taken over"):
            instances.run(older, shard, 2, old)
    # It was not fenced again: the newer owner goes on with what it has open.
    instances.run(newer, 1, 2, new)
    instances.mint()
    for shard in range(SHARDS):
        instances.run(newer, shard, 3, new)
    instances.committed = 3

    instances.mint()
    instances.run(newer, 0, 4, other)
    with pytest.raises(Exception, match="taken over by a newer holder"):
        instances.run(newer, 0, 4, new)
    # Spark tries the task again: the batch is adopted.
    assert instances.run(newer, 0, 4, new).batch == 4
    instances.run(newer, 1, 4, new)
    # Back to the one that has kept what is older than the last batch.
    for batch in (5, 6):
        instances.mint()
        instances.run(newer, 0, batch, new if batch == 5 else other)
        instances.run(newer, 1, batch, other)
    assert_exact(instances, 7)


@pytest.mark.parametrize(("point", "adopted"), [("before_commit", False), ("after_commit", True)])
def test_an_owner_that_dies_is_followed_by_another(
    instances: Instances,
    start: Callable[[str], Workers],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    *,
    adopted: bool,
) -> None:
    """R19. What it has committed is adopted; else the batch is computed anew, from the files."""
    monkeypatch.setenv("IKEBANA_FAULT", f"{point}:1:0:{tmp_path / 'once'}")
    workers = start("run")
    taken, owner = instances.take_over(), by_owner(workers)
    instances.mint()
    for shard in range(SHARDS):
        instances.run(taken, shard, 0, owner)
    (first,) = owners_of(workers)
    instances.mint()
    with pytest.raises(LostError, match="owns shard 0"):
        instances.run(taken, 0, 1, owner)
    # A transaction that the dead owner began stays open until the next owner fences it.
    expected = 4 if adopted else 2
    wait_until(lambda: len(instances.updates_now()) == expected, 60, "the committed updates")
    for shard in range(SHARDS):
        instances.run(taken, shard, 1, owner)
    (second,) = owners_of(workers)
    instances.mint()
    for shard in range(SHARDS):
        instances.run(taken, shard, 2, owner)

    assert first != second
    assert_exact(instances, 3)


def test_a_task_that_was_given_up_while_it_waited_is_not_run(
    instances: Instances, start: Callable[[str], Workers]
) -> None:
    """Whoever has stopped its query may take the shard over; nobody waits for the answer."""
    workers = start("run")
    taken, owner = instances.take_over(), by_owner(workers)
    instances.mint()
    for shard in range(SHARDS):
        instances.run(taken, shard, 0, owner)
    instances.mint()
    # The owner waits for what the first connection sends, and the task behind it for the owner.
    with connected(workers), pytest.raises(GivenUpError):
        instances.run(taken, 0, 1, functools.partial(_given_up, workers))
    # Served after the task that was given up.
    instances.run(taken, 1, 1, owner)

    assert {key for key, _, _ in instances.updates()[len(KEYS) :]} == {KEYS[1]}
    instances.run(taken, 0, 1, owner)
    assert_exact(instances, 2)


class GivenUpError(Exception):
    """A task has sent its request, and was killed."""


def _given_up(
    workers: Workers, job: Job, shard: int, state: bytes | None, rows: list[bytes]
) -> CommitRecord:
    digest = network.Pickled.of(job).digest
    with connected(workers) as connection:
        ask = network.Ask(digest, shard, state, [len(row) for row in rows])
        network.send(connection, ask, rows)
    raise GivenUpError


@contextlib.contextmanager
def connected(workers: Workers) -> Iterator[socket.socket]:
    """A connection to the owner."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(workers.address.address(0))
        yield connection


def test_owners_end_when_the_host_is_killed(
    instances: Instances, start: Callable[[str], Workers]
) -> None:
    """Their databases are closed then, and whoever cannot reach an owner is told."""
    workers = start("run")
    taken = instances.take_over()
    instances.mint()
    instances.run(taken, 0, 0, by_owner(workers))
    running = owners_of(workers)
    psutil.Process(workers.server).kill()

    wait_until(lambda: not any(each.is_running() for each in running), 30, "the owner's end")
    assert len(running) == 1
    no_job = network.Pickled(b"", "")
    assert owners.run({0: workers.address}, no_job, {0: None}, {0: []}) == {0: None}


def test_a_process_that_keeps_few_shards_open_serves_many(instances: Instances) -> None:
    """R12. Shards are closed and opened again, and a batch that failed leaves nothing open."""
    way: Way = OpenShards(most=1).run
    taken = instances.take_over()
    for batch in range(3):
        instances.mint()
        for shard in range(SHARDS):
            if batch == 1:
                with pytest.raises(AssertionError, match="0 ticks"):
                    instances.run(taken, shard, batch, functools.partial(_without_rows, way))
            instances.run(taken, shard, batch, way)
    assert_exact(instances, 3)


def _without_rows(
    way: Way, job: Job, shard: int, state: bytes | None, rows: list[bytes]
) -> CommitRecord:
    return way(job, shard, state, rows[:0])
