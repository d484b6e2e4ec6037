"""Decide whether a pipeline with a lost checkpoint can be rebuilt from its topics, and how.

The new checkpoint has the id of the lost one, and its next epoch: readers of the outputs go on,
and an instance of the lost checkpoint finds that it was replaced.  Parts that cannot be rebuilt
exactly are refused by name.
"""

# Decision (a lost checkpoint is the next epoch): Readers go on, and the transactional ids fence
# the lost instance. Not an edit of an empty plan, which would need the old contents in the state.
# Commit records come before metadata: a death in between is followed by another `recover`.

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ikebana.processor.base.offsets import Positions
from ikebana.processor.base.transition import Phase, Rebuilding, Transition
from ikebana.processor.checkpoint.commits import CommitRecord, Lease
from ikebana.processor.checkpoint.takeover import OutputState, lasting_topics
from ikebana.processor.planning import progress, starts
from ikebana.processor.planning.edits import EditProblem
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.plan import Plan, StateMachine
from ikebana.processor.topics import replays
from ikebana.processor.topics.replays import Ends
from ikebana.processor.topics.source_offset import SourceOffset

_NEW = "Start with a new checkpoint, a new name of the pipeline, and new output topics"


@dataclass(frozen=True, slots=True)
class Unclosed:
    """The records of an output after its last progress: their number and last time."""

    count: int = 0
    last: int = -1


def unclosed_records(
    read: Unclosed, output: str, last: int, commits: Iterable[CommitRecord | None]
) -> Unclosed:
    """The records of an output after the batch `last`; `read` are those that could be read.

    Records after the beginning of an open transaction cannot be read, until it is ended or its
    writer is fenced.  A shard's commit record has counted them.
    """
    beyond = [commit for commit in commits if commit is not None and commit.batch > last]
    count = sum(commit.counts.get(output, 0) for commit in beyond)
    if count <= read.count:
        return read
    return Unclosed(count, max([read.last, *(commit.upper - 1 for commit in beyond)]))


@dataclass(frozen=True, slots=True)
class Remains:
    """What the brokers still have of a pipeline.

    `outputs` and `unclosed` are by the name of the output, `commits` by the number of the shard.
    `starts` are the first offsets of inputs that do not begin at the beginning of their topics.
    `lost` has, by output, why its contents cannot be read.  `read_back` are the offsets of the
    contents of outputs, `begins` and `ends` the offsets of inputs, and `policies` the cleanup
    policies of their topics.
    """

    lease: Lease | None
    commits: Mapping[int, CommitRecord | None]
    outputs: Mapping[str, OutputState]
    unclosed: Mapping[str, Unclosed]
    lost: Mapping[str, str]
    read_back: Ends
    begins: Positions
    ends: Positions
    policies: Mapping[str, str]
    topic_ids: Mapping[str, str]
    exchanges: Mapping[int, int]
    starts: Positions = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """The last closed batch; -1 if there was none.

        Readers expect the next one after it.  Updates that shards wrote in later batches are
        retracted.
        """
        shown = [each.last.batch for each in self.outputs.values() if each.last is not None]
        return max([-1, *shown])

    def stand(self, output: str) -> int:
        """The time up to which an output is closed."""
        last = self.outputs[output].last
        return 0 if last is None else last.upper

    def given_up(self, output: str) -> range:
        """The times at which an output keeps the contents it had when the checkpoint was lost.

        Other outputs may have been closed further; from `begin` on all have the rebuilt contents.
        """
        has_begun = self.outputs[output].last is not None
        return range(self.stand(output), self.begin) if has_begun else range(0)

    def has_messages(self, output: str) -> bool:
        """Whether anything was ever written to the topic of an output."""
        last = self.outputs[output].last
        closed = last is not None and any(last.ends.values())
        return closed or self.unclosed[output].count > 0

    @property
    def begin(self) -> int:
        """A time beyond all times that the pipeline has written."""
        commits = [commit for commit in self.commits.values() if commit is not None]
        return max(
            [
                0,
                *(self.stand(name) for name in self.outputs),
                *(each.last + 1 for each in self.unclosed.values()),
                *(commit.upper for commit in commits),
                *(upper for commit in commits for _, upper in commit.intervals.values()),
            ]
        )


def rebuild(plan: Plan, left: Remains) -> SourceOffset:
    """The offset after the last closed batch of the lost checkpoint, at which the rebuild begins.

    The new state begins beyond all updates in the topics of outputs.  The exchange topic belongs
    to the lost state and is skipped.
    """
    begin, ids = left.begin, left.topic_ids
    return SourceOffset(
        batch=left.batch,
        lower=begin,
        upper=begin,
        positions={t: {**left.begins[t], **left.starts.get(t, {})} for t in plan.topics},
        plan=plan.fingerprint(),
        frontiers=dict.fromkeys(progress.edges(plan), begin) if begin else {},
        topic_ids={topic: ids[topic] for topic in plan.topics if topic in ids},
        exchanges=dict(left.exchanges),
        transition=Transition(
            at=begin,
            phase=Phase.REBUILD,
            read_back=replays.nothing_read(left.read_back),
            rebuilding=Rebuilding(
                until={topic: dict(left.ends[topic]) for topic in plan.topics},
                stands={output.name: left.stand(output.name) for output in plan.published},
                unclosed={name: each.count for name, each in left.unclosed.items() if each.count},
            ),
        ),
    )


def problems(plan: Plan, timeless: Collection[str] = ()) -> Iterator[EditProblem]:
    """Yield the parts of a plan that can never be rebuilt exactly.

    `timeless` are state machines with steps that do not depend on times, according to the user.
    """
    for source in plan.inputs:
        path = f"inputs.{source.name}"
        if source.is_dated:
            yield EditProblem(
                path,
                "has times of its own: which of its records were late, and by which frontier, "
                "only the lost checkpoint had",
                _NEW,
            )
        elif source.history is not None:
            yield EditProblem(
                f"{path}.history",
                "was read before the topic, and only the lost checkpoint knew the files",
                _NEW,
            )
        elif source.start == "latest":
            yield EditProblem(
                path,
                "was read from the end that its topic had at the first start, and only the lost "
                "checkpoint had that",
                _NEW,
            )
    for operator in plan.operators:
        if isinstance(operator, StateMachine) and operator.name not in timeless:
            yield EditProblem(
                f"operators.{operator.name}",
                "is a state machine: its steps may depend on the times at which events were "
                "first read, and only the lost checkpoint had these",
                f"If they do not, say so with --timeless {operator.name}",
            )
    for join in plan.joins:
        if isinstance(join, AsOfJoin):
            yield EditProblem(
                f"operators.{join.name}",
                "is a join as of a time: its results depend on which records of its inputs came "
                "before which, and only the lost checkpoint had that",
                "Recover with a pipeline file without it and what reads it, and add them to "
                "that one, with outputs of other topics",
            )


def rebuild_problems(plan: Plan, left: Remains) -> Iterator[EditProblem]:
    """Yield the parts that cannot be rebuilt exactly from the remaining topics."""
    yield from _of_inputs(plan, left)
    lease = left.lease
    for output in plan.published:
        path, shown = f"outputs.{output.name}", left.outputs[output.name]
        if output.traits.codec is not None and left.has_messages(output.name):
            yield EditProblem(
                path,
                f"has the format {output.format}, whose messages cannot be taken back",
                "Name another topic for the output: it begins there with all that there is",
            )
        elif reason := left.lost.get(output.name):
            yield EditProblem(path, reason, _NEW)
        elif shown.last is None and shown.begins:
            yield EditProblem(path, f'"{output.progress_topic}" has lost its records', _NEW)
        elif lease and shown.last is not None and shown.last.checkpoint != lease.checkpoint:
            yield EditProblem(
                path,
                f'has the topic "{output.topic}", which belongs to checkpoint '
                f"{shown.last.checkpoint} of pipeline {shown.last.pipeline!r}",
                "Name another topic for the output",
            )
        elif shown.last is not None and shown.last.batch != left.batch:
            # Progress of a batch is published to all outputs of a pipeline in one transaction.
            yield EditProblem(
                path,
                f'has the topic "{output.topic}", which ends with batch {shown.last.batch}, and '
                f"other outputs with batch {left.batch}: an edit had removed its output, and "
                "readers would miss the batches since",
                "Name another topic for the output",
            )
        elif output.traits.facts is not None and left.unclosed[output.name].count:
            yield EditProblem(
                path,
                f'has the format {output.format}, and its topic "{output.topic}" has updates of a '
                "batch that was not closed",
                _NEW,
            )
    ids = {} if lease is None else lease.topic_ids
    for topic in lasting_topics(plan):
        if topic in ids and left.topic_ids.get(topic) != ids[topic]:
            what = "was deleted and created again" if topic in left.topic_ids else "was deleted"
            names = [output.name for output in plan.published if output.topic == topic]
            path = f"outputs.{names[0]}" if names else plan.name
            yield EditProblem(path, f'cannot go on: its topic "{topic}" {what}', _NEW)


def _of_inputs(plan: Plan, left: Remains) -> Iterator[EditProblem]:
    machines = {machine.input: machine.name for machine in plan.machines}
    for source in plan.inputs:
        path = f"inputs.{source.name}"
        for topic in source.topics:
            # With a start at a time, the first record at or after it may be gone.
            at_offsets = isinstance(starts.place_of(source.start), starts.AtOffsets)
            first = left.starts.get(topic, {}) if at_offsets else {}
            for partition, begin in sorted(left.begins[topic].items()):
                if begin > first.get(partition, 0):
                    yield EditProblem(
                        path,
                        f"would have to be read again from {starts.words(source.start)}, and "
                        f"{topic}[{partition}] begins at offset {begin}: the records before are "
                        "gone",
                        _NEW,
                    )
            if "compact" not in left.policies.get(topic, ""):
                continue
            if source.name in machines or source.is_collection:
                yield EditProblem(
                    path,
                    f'has the topic "{topic}", which is compacted: it may lack records, of which '
                    "each one counts",
                    _NEW,
                )
