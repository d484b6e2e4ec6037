"""What is finished under the plan of before, before another plan is taken up.

A checkpoint may be left at any moment: with a batch that is logged and unfinished, with updates
between operators, or with an edit on its way.  All of that is of the plan that has run, and of
no other.  So a start with another plan first runs that one, which reads nothing new, until
nothing is on its way any more.  A start that ends in between leaves what any run of that plan
leaves, and the next one goes on from there.
"""

from dataclasses import replace

import msgspec

from ikebana.processor.checkpoint.checkpoint import Birth
from ikebana.processor.checkpoint.edit_plan import Finishing
from ikebana.processor.checkpoint.evolution import names_of, recorded
from ikebana.processor.checkpoint.layout import Logged
from ikebana.processor.planning.plan import Input, Output, Plan
from ikebana.processor.timing.reclock import is_settled


def finishing(
    birth: Birth, plan: Plan, logged: Logged, *, rescales: bool = False
) -> Finishing | None:
    """What has to be finished before a plan may go on; None if nothing is, or it is that plan's.

    The plan is one that has the names which its parts have in the checkpoint; `birth` has the
    plan that has run.  Where another number of shards follows (`rescales`), what is on its way
    is finished even if the plan stays.
    """
    offset = logged.offset
    if offset is None or (not rescales and offset.plan in names_of(birth, plan)):
        return None
    found = Finishing(
        logged.batch,
        unfinished=logged.batch > logged.committed,
        between_operators=not is_settled(offset),
    )
    return found if found.unfinished or found.between_operators else None


def plan_of_before(birth: Birth, plan: Plan) -> Plan:
    """The plan that has run, with what of a new one counts at once, and what no record has.

    Raises: CheckpointError, if it cannot be made any more.
    """
    old = recorded(birth)
    inputs = {source.name: source for source in plan.inputs}
    outputs = {(output.topic, output.format): output for output in plan.outputs}
    return replace(
        old,
        on_error=plan.on_error,
        inputs=tuple(_input(source, inputs.get(source.name)) for source in old.inputs),
        outputs=tuple(
            _output(output, outputs.get((output.topic, output.format))) for output in old.outputs
        ),
    )


def _input(old: Input, new: Input | None) -> Input:
    if new is None:
        return old
    event, now = old.event_time, new.event_time
    if event is not None and now is not None:
        event = msgspec.structs.replace(event, lateness_ms=now.lateness_ms, idle_ms=now.idle_ms)
    return replace(old, start=new.start, event_time=event)


def _output(old: Output, new: Output | None) -> Output:
    if new is None:
        return old
    return replace(old, partitions=new.partitions, tombstones=new.tombstones)
