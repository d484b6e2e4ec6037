"""Count the records and updates of a shard that wait until their times are closed."""

from collections.abc import Iterable, Mapping

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.processor.checkpoint.parts import waiting_parts
from ikebana.processor.kernels import hold
from ikebana.processor.kernels.layout import operator_part
from ikebana.processor.planning.backfill import reads_again
from ikebana.processor.planning.plan import Plan

# Each part of the state is counted up to this number, which takes a millisecond or two.
MOST = 1_000


def waiting(
    plan: Plan, store: Store, intervals: Mapping[str, Interval], holds: Iterable[str]
) -> int:
    """How many records, and updates of them, wait for a frontier to pass their times.

    `holds` are the holds of updates that count; updates that a step moved into the future do not,
    since nobody waits for them.  Inputs that are read again do not count: their records also wait
    in the other reading.
    """

    again = reads_again(plan)
    count = sum(hold.waiting(operator_part(store, name), MOST) for name in holds)
    for name, part in waiting_parts(plan):
        if name not in again and part.waiting is not None:
            count += part.waiting(part.of(store, name), intervals[name].upper, MOST)
    return count
