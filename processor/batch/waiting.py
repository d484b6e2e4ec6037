"""Count the records and updates of a shard that wait until their times are closed."""

from collections.abc import Iterable, Mapping

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.processor.checkpoint import parts
from ikebana.processor.kernels import facts, hold, state_machine, upsert
from ikebana.processor.planning.backfill import reads_again
from ikebana.processor.planning.input_rows import comes_out_of_decoding
from ikebana.processor.planning.plan import Plan

# In each part of the state it is counted up to this, which takes a millisecond or two.
MOST = 1_000


def waiting(
    plan: Plan, store: Store, intervals: Mapping[str, Interval], holds: Iterable[str]
) -> int:
    """How many records, and updates of them, wait for a frontier to pass their times.

    `holds` are the parts of the state where updates are held that do; what a step has moved
    into the future waits for its time, and nobody for it; what is read again waits twice.
    """

    def part(kind: str, name: str) -> Part:
        return parts.operator_part(store, kind + name)

    again = reads_again(plan)
    count = sum(hold.waiting(part("", name), MOST) for name in holds)
    for name in (o.name for o in plan.upserts if o.name not in again):
        count += upsert.waiting(part("", name), intervals[name].upper, MOST)
    for name in (o.name for o in plan.machines if o.name not in again):
        count += state_machine.waiting(part(parts.MACHINE, name), intervals[name].upper, MOST)
    for source in plan.inputs:
        if source.is_collection and not comes_out_of_decoding(source):
            upper = intervals[source.name].upper
            count += facts.waiting(part(parts.FACTS, source.name), upper, MOST)
    return count
