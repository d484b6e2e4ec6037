"""What is finished under the plan of before, before another plan is taken up.

A checkpoint may be left at any moment: with a batch that is logged and unfinished, with updates
between operators, or with an edit on its way.  All of that is of the plan that has run, and of
no other.  So a start with another plan first runs that one, which reads nothing new, until
nothing is on its way any more.  A start that ends in between leaves what any run of that plan
leaves, and the next one goes on from there.

An unfinished batch that no shard has committed has left nothing anywhere, so it need not be
finished: its entry in the log is dropped.  The plan may be changed for the very reason that this
batch fails, every time: its function never returns, its join explodes, or the records that it
reads are gone.
"""

from ikebana.processor.checkpoint.checkpoint import Birth
from ikebana.processor.checkpoint.edit_plan import Finishing
from ikebana.processor.checkpoint.layout import Logged
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import is_settled


def finishing(
    birth: Birth, plan: Plan, logged: Logged, *, rescales: bool = False
) -> Finishing | None:
    """What has to be finished before a plan may go on; None if nothing is, or it is that plan's.

    The plan is one that has the names which its parts have in the checkpoint; `birth` has the
    plan that has run.  Where another number of shards follows (`rescales`), what is on its way
    is finished even if the plan stays.
    """
    offset = logged.offset
    if offset is None or (not rescales and offset.plan == plan.fingerprint()):
        return None
    rest = Finishing(
        logged.batch,
        unfinished=logged.batch > logged.committed,
        between_operators=not is_settled(offset),
    )
    return rest if rest.unfinished or rest.between_operators else None


def is_void(logged: Logged, committed: int) -> bool:
    """Whether the last batch in the log has left nothing: no shard has committed it.

    `committed` is the last batch that any shard has committed, after all others that could commit
    it have been fenced.
    """
    return logged.committed < logged.batch and committed < logged.batch
