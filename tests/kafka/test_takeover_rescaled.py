"""A takeover after rescalings: the shards of before, and what they have told."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ikebana import Input, Output, Plan
from ikebana.errors import CheckpointError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, metadata_of
from ikebana.processor.checkpoint.commits import reports_of
from ikebana.processor.kafka import client, transactions
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.inputs import DatedInputs, Inputs
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.takeover import Takeover, take_over
from ikebana.processor.kafka.transactions import TransactionalProducer, commit_alone
from ikebana.processor.topics.source_offset import SourceOffset
from support.pipeline_processes import create

pytestmark = pytest.mark.kafka


class Rescaled:
    """A pipeline without Spark: takeovers, commit records of batches, and metadata."""

    def __init__(self, servers: str, name: str, folder: Path, shards: int) -> None:
        create(servers, name + ".in", 1)
        self.plan = Plan(
            name,
            inputs=(Input("facts", (name + ".in",), "cdcv2-json", mode="diffs"),),
            operators=(),
            outputs=(Output("out", "facts", name + ".out"),),
        )
        self.settings = Settings(
            checkpoint=str(folder), kafka={"bootstrap.servers": servers}, shards=shards
        )
        start = Inputs(self.plan, self.settings.kafka).start()
        self.metadata: CheckpointMetadata = metadata_of(str(folder), self.plan, shards, start)
        self.last: SourceOffset = start

    def taken(self) -> Takeover:
        batch = self.last.batch
        logged = Logged(self.last, batch, batch)
        result = take_over(
            self.plan, self.settings, self.metadata, lambda: logged, lambda: None, "a test"
        )
        self.reports = result.state.reports
        return result

    def batch(self, facts: dict[int, int] | None = None) -> None:
        """Commit a batch in which each shard has found so many facts of time 5."""
        kafka, committed = self.settings.kafka, []
        self.last = replace(self.last, batch=self.last.batch + 1)
        for shard in range(self.metadata.shards):
            commit = transactions.last_commit(RangeReader(kafka), self.plan.commits_topic, shard)
            assert commit is not None
            found = {"facts": [5, (facts or {}).get(shard, 0)]}
            after = replace(
                commit, batch=self.last.batch, offset=self.last.digest(), facts=found, seen=[]
            )
            sender = TransactionalProducer(
                dict(kafka), transactions.task_id(self.metadata.id, shard), 60
            )
            commit_alone(sender, self.plan.commits_topic, after)
            committed.append(after)
        self.reports = reports_of(committed)

    def rescale(self, shards: int) -> None:
        """What `ikebana rescale` writes, but for the state."""
        self.metadata = replace(
            self.metadata,
            shards=shards,
            epoch=self.metadata.epoch + 1,
            first_batch=self.last.batch + 1,
            start=self.last,
        )

    def learned(self) -> list[int]:
        """How many facts of which times the next batch will know of."""
        admin = client.admin(self.settings.kafka)
        known, _ = DatedInputs(self.plan, admin, self.settings.kafka).knowledge(
            self.last, {self.plan.name + ".in": {0: 0}}, self.reports
        )
        coverage = known["facts"].coverage
        assert coverage is not None
        return coverage.counts


@pytest.fixture
def pipeline(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Rescaled:
    """One of three shards that has never run."""
    return Rescaled(broker.bootstrap_servers, topic_name("rescaled"), tmp_path, 3)


@pytest.mark.parametrize("shards", [1, 4])
def test_what_the_last_batch_told_is_learned_with_other_shards(
    pipeline: Rescaled, shards: int
) -> None:
    """A count that got lost would be waited for for ever."""
    pipeline.taken()
    pipeline.batch({0: 1, 1: 2, 2: 4})
    pipeline.rescale(shards)
    pipeline.taken()

    assert pipeline.learned() == [5, 7]

    pipeline.taken()
    pipeline.batch({0: 1})

    assert pipeline.learned() == [5, 1]


@pytest.mark.parametrize("shards", [1, 3])
def test_after_fewer_shards_any_number_can_follow(pipeline: Rescaled, shards: int) -> None:
    """The commit records of shards that are gone are of an older batch, and nothing is wrong."""
    pipeline.taken()
    pipeline.batch()
    pipeline.rescale(1)
    pipeline.taken()
    pipeline.batch({0: 3})
    pipeline.rescale(shards)
    pipeline.taken()

    assert pipeline.learned() == [5, 3]

    pipeline.batch({0: 1})
    pipeline.taken()


def test_shards_that_ran_on_after_the_rescaling_are_told(pipeline: Rescaled) -> None:
    """The new checkpoint lacks what they have done."""
    pipeline.taken()
    pipeline.batch()
    before = pipeline.last
    pipeline.batch()
    pipeline.last = before
    pipeline.rescale(1)

    with pytest.raises(CheckpointError, match=r"old copy|has committed batch"):
        pipeline.taken()
