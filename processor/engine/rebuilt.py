"""What outputs get while the state of a lost checkpoint is rebuilt, and when that is done.

Until the last batch of the rebuild, outputs are frozen.  The hold of an output adds up the
results of the plan, minus the contents of the output's own topic.  Both count at one time, so
that equal data cancel.  The last batch writes the remaining difference at that time.
"""

from collections.abc import Collection

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Part
from ikebana.processor.base.rebuilding import Rebuilding, under_way
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import hold
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.planning.plan import Plan


def standing(intervals: dict[str, Interval], of: Rebuilding | None) -> dict[str, Interval]:
    """The intervals of outputs in a rebuild: empty at their frontiers until its last batch."""
    if of is None:
        return intervals
    result = {}
    for name, interval in intervals.items():
        stand = of.stands.get(name, 0)
        result[name] = Interval(stand, interval.upper if of.ends else stand)
    return result


def standing_outputs(plan: Plan, of: Rebuilding | None) -> list[str]:
    """List the frozen outputs, for which progress reports neither times nor end offsets."""
    return [output.name for output in plan.published] if under_way(of) else []


def rebuilt(
    part: Part, updates: Collection[KeyedUpdate], of: Rebuilding, stand: Time, passed: Time
) -> list[KeyedUpdate]:
    """Add updates to the hold of an output, and release the difference in the last batch.

    The output is closed up to `stand`, and its collection has `passed` a time.  Updates of later
    times go on waiting.
    """
    adding = [
        update._replace(time=of.begin) if of.begin <= update.time < passed else update
        for update in updates
    ]
    if not of.ends:
        released = hold.step(part, adding, stand)
        assert not released, "an output gets updates of times that are closed"
        return released
    # Updates that waited for a time which has been passed meanwhile count at the one time.
    return consolidated(
        [
            update._replace(time=min(update.time, of.begin))
            for update in hold.step(part, adding, passed)
        ]
    )
