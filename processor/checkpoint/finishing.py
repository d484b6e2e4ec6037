"""The work that the old plan has to finish before another plan may run.

A run may end at any moment: with a batch that is logged and unfinished, with updates between
operators, or with an unfinished edit.  All of that belongs to the plan that has run.  So a start
with another plan first runs the old one, which reads nothing new, until all work is finished.  If
that start ends in between, the next one continues from there.

An unfinished batch that no shard has committed has no effect anywhere, so it need not be
finished: its entry in the log is dropped.  The plan may be changed for the very reason that this
batch fails every time: its function never returns, its join explodes, or its records are gone.
"""

from ikebana.processor.checkpoint.checkpoint import Birth
from ikebana.processor.checkpoint.edit_plan import Finishing
from ikebana.processor.checkpoint.layout import Logged
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import is_settled


def finishing(
    birth: Birth, plan: Plan, logged: Logged, *, rescales: bool = False
) -> Finishing | None:
    """The work that has to be finished before a plan may run; None if there is none.

    `plan` has the names of its parts in the checkpoint; `birth` has the plan that has run.  Work
    of the same plan need not be finished, unless the number of shards changes (`rescales`).
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
    """Whether the last batch in the log has no effect: no shard has committed it.

    `committed` is the last batch that any shard has committed, read after all other instances
    have been fenced.
    """
    return logged.committed < logged.batch and committed < logged.batch
