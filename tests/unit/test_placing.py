"""Where the shards of a run are, as its executors come and go."""

from pathlib import Path
from typing import Any

import pytest

from ikebana.errors import LostError
from ikebana.processor.spark import executors
from ikebana.processor.spark.executors import Placing
from ikebana.processor.spark.workers import owners
from support.waiting import wait_until


class Cluster:
    """Executors by their ids, each with its host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.hosts = {"0": "1 1 a:1,2", "1": "1 1 b:1,2"}
        self.error: Exception | None = None
        self.asked = 0
        self._path = path
        monkeypatch.setattr(executors, "executors_of", lambda _: frozenset(self.hosts))
        monkeypatch.setattr(executors, "hosts_by_executor", self._asked)

    def _asked(self, *_: object) -> dict[str, str]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return dict(self.hosts)

    @property
    def shards(self) -> list[str]:
        """The machine of each shard, as the source is told."""
        told = owners.placement_in(self._path)
        assert told is not None
        return [host.place for _, host in sorted(owners.hosts_of(told).items())]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    """Two executors."""
    return Cluster(monkeypatch, tmp_path / "hosts")


@pytest.fixture
def placed(cluster: Cluster, tmp_path: Path) -> Placing:
    """Four shards on them."""
    nobody: Any = None
    found = Placing(nobody, 4, tmp_path / "hosts")
    found.begin()
    return found


def test_shards_leave_an_executor_that_is_lost_at_once(cluster: Cluster, placed: Placing) -> None:
    """And come to the next one; who stays is asked only when others come or go."""
    assert cluster.shards == ["a", "b", "a", "b"]
    assert (placed.look(), cluster.asked) == (frozenset(), 1)

    del cluster.hosts["1"]
    # Nobody answers yet.
    cluster.error = LostError("an executor was lost")
    assert placed.look() == {"1"}
    assert cluster.shards == ["a"] * 4
    cluster.error, cluster.hosts["2"] = None, "1 1 c:1,2"
    wait_until(lambda: not placed.look() and sorted(cluster.shards) == [*"aacc"], 30, "the next")


def test_a_host_that_was_not_reached_is_left_out_until_another_is_there(
    cluster: Cluster, placed: Placing
) -> None:
    """Its executor may have lost its daemon, or a network may let nobody through."""
    placed.leave_out({"1 1 b:1,2"})
    wait_until(lambda: not placed.look() and cluster.shards == ["a"] * 4, 30, "one host")

    cluster.hosts["1"] = "1 1 b:3,4"
    placed.leave_out(set())
    wait_until(lambda: not placed.look() and sorted(cluster.shards) == [*"aabb"], 30, "both")


def test_executors_that_could_not_be_asked_are_asked_again(
    cluster: Cluster, placed: Placing, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards stay where they are meanwhile."""
    cluster.error = LostError("an executor was lost")
    cluster.hosts["2"] = "1 1 c:1,2"
    wait_until(lambda: not placed.look() and cluster.asked > 2, 30, "two looks")
    assert cluster.shards == ["a", "b", "a", "b"]
    assert "could not ask executors where shards can be: LostError: an executor was lost" in (
        capsys.readouterr().err
    )

    cluster.error = None
    wait_until(lambda: not placed.look() and {*cluster.shards} == {*"abc"}, 30, "all three")
