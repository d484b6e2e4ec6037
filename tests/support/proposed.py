"""What `ikebana new` would write for some messages, run over these messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import ikebana.testing
from ikebana.codecs.avro_schema import Schemas
from ikebana.processor.authoring.pipeline import ConfiguredPlan, parse
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.authoring.proposing.proposal import Proposal, propose, until_readable
from ikebana.processor.authoring.proposing.writing import WRITERS
from ikebana.processor.planning.plan import Input, Plan


class Run(NamedTuple):
    """A proposal, the input that its text declares, and what running that comes to.

    `rows` are the values in the end, `errors` the reasons of the error records.
    """

    proposal: Proposal
    text: str
    source: Input
    rows: list[Any]
    errors: list[str]


def run_of(
    samples: Sequence[Sample], schemas: Schemas | None = None, topic: str = "shop.orders"
) -> Run:
    """Propose, write, read and run, as `ikebana new` and `ikebana run` do.

    Without `schemas` for messages in Avro, nothing is run.
    """

    def write(one: Proposal) -> str:
        return WRITERS["yaml"].written("new", [one], "b:1", "http://r:1")

    proposal = until_readable(propose(topic, samples, schemas), samples, schemas, write)
    text = write(proposal)
    plan = parse(text, "new.yaml", environ={}).plan
    (source,) = plan.inputs
    assert in_sql([proposal]).plan == plan
    assert in_python([proposal]).inputs == plan.inputs
    if proposal.needs_registry and schemas is None:
        return Run(proposal, text, source, [], [])
    run = ikebana.testing.Run(plan, schemas=schemas)
    for sample in samples:
        headers: Any = list(sample.headers or ()) or None
        run.topics.send(topic, sample.key, sample.value, headers=headers)
    run.read()
    rows = [value for _, value in run.collection("changes")]
    return Run(proposal, text, source, rows, [record["reason"] for record in run.errors()])


def in_sql(proposals: Sequence[Proposal]) -> ConfiguredPlan:
    """The pipeline that the proposals' text in SQL is."""
    text = WRITERS["sql"].written("new", proposals, "b:1", "http://r:1")
    return parse(text, "new.sql", environ={})


def in_python(proposals: Sequence[Proposal]) -> Plan:
    """The plan that the proposals' program makes."""
    text = WRITERS["python"].written("new", proposals, "b:1", "http://r:1")
    there: dict[str, Any] = {"__name__": "new"}
    exec(compile(text, "new.py", "exec"), there)
    plan: Plan = there["pipeline"].plan()
    return plan
