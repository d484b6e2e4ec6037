"""Write a proposal as a pipeline in Python, with comments."""

import json
from collections.abc import Sequence

from ikebana.codecs.formats import FORMATS
from ikebana.processor.authoring.proposing.proposal import Proposal
from ikebana.processor.authoring.proposing.writing import (
    InputNames,
    comments,
    formats,
    heading,
    names,
    needs_registry,
)

SAMPLE = '''\
"""A first pipeline: the current orders, and how much of each product is ordered.

`python FILE` runs it; docs/python.md has all of the interface.
"""

from typing import TypedDict

import ikebana as ik


class Order(TypedDict):
    product: str
    quantity: int


# Names the pipeline and its state: keep this name, and those below.
# time="ingest": one time for each micro-batch, in milliseconds; "offset": one for each record.
pipeline = ik.Pipeline("first-orders", time="ingest")
# Messages such as 1 -> {"product": "tea", "quantity": 2}; one without a value deletes its key.
current = pipeline.topic("orders", row=Order).upsert("current")
# Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.
current.where("quantity > 9").named("large").to("orders.large", name="large")
# Messages of key and newest value, as in a compacted topic.
ordered = current.reduce(by="product", name="ordered", quantity="sum(quantity)")
ordered.to("orders.by-product", format="upsert", name="ordered")

if __name__ == "__main__":
    # The checkpoint has to survive a restart.
    pipeline.run(%s, checkpoint="./checkpoint-first-orders")
'''
_COLLECTIONS = {"append": "rows()", "diffs": "changes()"}


def sample(brokers: str) -> str:
    """Write an example program, which runs as soon as there is a topic `orders`."""
    return SAMPLE % text(brokers)


def written(
    name: str, proposals: Sequence[Proposal], brokers: str, registry: str | None = None
) -> str:
    """Write a program whose `pipeline` reads the proposed inputs and publishes each of them."""
    settings = ""
    if needs_registry(proposals):
        url = text(registry or "http://localhost:8081")
        settings = f'settings={{"registry": {{"url": {url}}}}}'
    # A text within the docstring must not end it.
    notes = [line.replace("\\", "\\\\").replace('"', "'") for line in comments(proposals)]
    lines = [
        f'"""{heading(proposals)}',
        "",
        "`python FILE` runs it; docs/python.md has all of the interface.",
        "",
        *notes,
        '"""',
        "",
        "import ikebana as ik",
        "",
        "# Names the pipeline and its state: keep this name, and those below.",
        '# time="ingest": one time for each micro-batch, in milliseconds; "offset": one for each '
        "record.",
        f'pipeline = ik.Pipeline({text(name)}, time="ingest")',
    ]
    for number, (part, proposal) in enumerate(zip(names(proposals), proposals, strict=True), 1):
        end = "" if len(proposals) == 1 else f"_{number}"
        lines += _published(part, proposal, end, is_first=number == 1)
    lines += ["", 'if __name__ == "__main__":']
    if needs_registry(proposals) and registry is None:
        lines.append("    # A guess: name the registry that has the schemas.")
    lines += [
        "    # The checkpoint has to survive a restart.",
        "    pipeline.run(",
        f"        {text(brokers)},",
        f"        checkpoint={text(f'./checkpoint-{name}')},",
        *([f"        {settings},"] if settings else []),
        "    )",
    ]
    return "\n".join(lines) + "\n"


def _published(part: InputNames, proposal: Proposal, end: str, *, is_first: bool) -> list[str]:
    """Read an input and publish it; the names of variables have this `end`."""
    read = _COLLECTIONS.get(proposal.mode, f"upsert({text(part.rows)})")
    lines = [
        f"source{end} = pipeline.topic(",
        *_input(proposal, part.input),
        f"current{end} = source{end}.{read}",
    ]
    if is_first:
        lines += [
            f'# current{end}.where("quantity > 9").named("large").to("large")',
            "# Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.",
        ]
    changes = text(f"{proposal.topic}.changes")
    return [*lines, f"current{end}.to({changes}, name={text(part.output)})"]


def text(value: str) -> str:
    """Write a text as Python does, in double quotes.

    >>> text('say "tea"')
    '"say \\\\"tea\\\\""'
    """
    return json.dumps(value, ensure_ascii=False)


def _input(proposal: Proposal, name: str) -> list[str]:
    lines = [f"    {text(proposal.topic)},", f"    name={text(name)},"]
    lines.append(f"    format={text(proposal.value)},")
    key = FORMATS[proposal.value].usual_key if isinstance(formats(proposal), str) else proposal.key
    if key != "json":
        lines.append(f"    key_format={text(key)},")
    if proposal.options:
        options = ", ".join(f"{text(key)}: {text(of)}" for key, of in proposal.options.items())
        lines.append(f"    options={{{options}}},")
    if proposal.tables is not None:
        lines.append("    # Other tables of the topic are not read.")
        lines.append(f"    tables={text(proposal.tables)},")
    if proposal.key_columns:
        lines.append(f"    key=[{', '.join(map(text, proposal.key_columns))}],")
    if proposal.columns:
        lines.append("    # Take away the columns that you do not want to be checked.")
        lines.append("    columns=[")
        for column in proposal.columns:
            if column.comment:
                lines.append(f"        # {column.comment}")
            encoding = "" if column.encoding is None else f", encoding={text(column.encoding)}"
            lines.append(f"        ik.Column({text(column.name)}, {text(column.type)}{encoding}),")
        lines.append("    ],")
    return [*lines, ")"]
