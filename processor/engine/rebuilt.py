"""What outputs get while the state of a lost checkpoint is made anew, and when it has been.

Until the last batch of it, outputs stand.  What comes to an output adds up in its hold: what the
plan makes, and minus what the output's own topic has.  Both count at one time, so that what is
the same cancels there.  The last batch writes what is left at that time, as the difference.
"""

from collections.abc import Collection

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Part
from ikebana.processor.base.rebuilding import Rebuilding, under_way
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import hold
from ikebana.processor.linear.chain import consolidated
from ikebana.processor.planning.plan import Plan


def standing(given: dict[str, Interval], of: Rebuilding | None) -> dict[str, Interval]:
    """The intervals of outputs: they stand where they were closed, until the last batch."""
    if of is None:
        return given
    found = {}
    for name, interval in given.items():
        stand = of.stands.get(name, 0)
        found[name] = Interval(stand, interval.upper if of.ends else stand)
    return found


def standing_outputs(plan: Plan, of: Rebuilding | None) -> list[str]:
    """List the outputs of which progress says nothing new, not even where their topics end."""
    return [output.name for output in plan.published] if under_way(of) else []


def rebuilt(
    part: Part, updates: Collection[KeyedUpdate], of: Rebuilding, stand: Time, passed: Time
) -> list[KeyedUpdate]:
    """Add updates to the hold of an output, and release the difference in the last batch.

    The output is closed up to `stand`, and what it shows has `passed` a time.  Updates of later
    times go on waiting for these.
    """
    adding = [
        update._replace(time=of.begin) if of.begin <= update.time < passed else update
        for update in updates
    ]
    if not of.ends:
        found = hold.step(part, adding, stand)
        assert not found, "an output gets updates of times that are closed"
        return found
    # What has waited for a time that has been passed meanwhile counts with all the others.
    return consolidated(
        [
            update._replace(time=min(update.time, of.begin))
            for update in hold.step(part, adding, passed)
        ]
    )
