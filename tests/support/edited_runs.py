"""Runs in memory whose plan is edited: plans of texts, edits, and what outputs come to."""

from collections import Counter

from ikebana import Plan
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.planning.edits import Edit, edit_between
from ikebana.testing import Run
from support.sums import summed

Collection = Counter[tuple[bytes | None, bytes]]


def plan_of(text: str, time: str = "") -> Plan:
    """The plan of a file with these sections; without `time`, times are offsets where they can."""
    time = time or ("ingest" if "event_time" in text else "offset")
    whole = f"""
pipeline: shop
kafka: {{bootstrap.servers: localhost:9092}}
run: {{checkpoint: ./c}}
time: {time}
{text}
"""
    return parse(whole, "shop.yaml", environ={}).plan


def edited(run: Run, plan: Plan | str) -> Edit:
    """Go on with another plan, or that of a text; what changes."""
    before = run.plan
    run.restart(plan_of(plan) if isinstance(plan, str) else plan)
    return edit_between(before, run.plan)


def collection(run: Run, output: str, as_of: int | None = None) -> Collection:
    """What an output comes to, up to a time: no datum is there less than not at all."""
    found = sums(run, output, as_of)
    assert min(found.values(), default=1) > 0, found
    return found


def sums(run: Run, output: str, as_of: int | None = None) -> Collection:
    """The sums of an output's diffs up to a time, where they are not 0."""
    updates = run.written.updates[output]
    return summed(((u.key, u.value), u.diff) for u in updates if as_of is None or u.time <= as_of)
