"""How a run continues: with an unfinished batch, a changed plan, or other shards."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from ikebana.arrangements.store import MemoryStore
from ikebana.errors import CheckpointError
from ikebana.processor.base.placing import shard_of
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.checkpoint.checkpoint import Birth, described
from ikebana.processor.checkpoint.parts import moved
from ikebana.processor.engine.dataflow import Emitted
from ikebana.processor.engine.in_process import Attempt
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import Positions, SourceOffset


@dataclass(slots=True)
class Unfinished:
    """A batch in the offset log that some shards have not committed.

    `attempts` has the last result of each shard, `committed` the results that are committed.
    """

    before: SourceOffset
    after: SourceOffset
    attempts: dict[int, Attempt] = field(default_factory=dict)
    committed: dict[int, Emitted] = field(default_factory=dict)

    @property
    def last_committed(self) -> int:
        """The last batch that any shard has committed."""
        return (self.after if self.committed else self.before).batch

    def computed(self, shard: int, result: Attempt) -> None:
        """Remember the result of a shard.

        Raises:
            CheckpointError: the shard had another result before.
        """
        earlier = self.attempts.setdefault(shard, result)
        if earlier is result:
            return
        for output, updates in result.emitted.updates.items():
            if (first := sorted(earlier.emitted.updates[output], key=repr)) != (
                then := sorted(updates, key=repr)
            ):
                raise CheckpointError(
                    f"batch {self.after.batch} of shard {shard}, run again, gives other updates "
                    f'of output "{output}": {_shown(first, then)} before, and '
                    f"{_shown(then, first)} now",
                    hint="A function of the pipeline depends on more than what it is given, such "
                    "as a clock, chance, or what it has kept.",
                )
        if earlier.changes != result.changes or earlier.emitted.hops != result.emitted.hops:
            raise CheckpointError(
                f"batch {self.after.batch} of shard {shard}, run again, leaves another state",
                hint="A function of the pipeline depends on more than what it is given, such as a "
                "clock, chance, or what it has kept.",
            )

    def commit(self, shard: int, store: MemoryStore) -> None:
        """Commit the result of a shard, if it is not committed already."""
        if shard not in self.committed:
            self.attempts[shard].commit(store)
            self.committed[shard] = self.attempts[shard].emitted


def _shown(updates: Sequence[KeyedUpdate], others: Sequence[KeyedUpdate]) -> str:
    """The first update that the others lack, as text."""
    return next((str(tuple(each)) for each in updates if each not in others), "none")


def born(plan: Plan, shards: int, last: SourceOffset, begins: Positions) -> Birth:
    """The metadata of a checkpoint of a plan.  Raises: PlanError, for functions without names."""
    plain = described(plan.portable())
    return Birth("test", "test", shards, plain, last, begins=begins)


def rescaled(stores: Sequence[MemoryStore], shards: int) -> list[MemoryStore]:
    """Distribute the entries of shards over another number of shards, by key."""
    after = [MemoryStore() for _ in range(shards)]
    entries = heapq.merge(*(list(store.scan(b"")) for store in stores))
    for shard, entry in moved(entries, lambda key: shard_of(key, shards)):
        after[shard].put(*entry)
    return after
