"""Write a proposal as a pipeline file in YAML, with comments."""

import re
from collections.abc import Sequence
from itertools import chain, count
from textwrap import wrap
from typing import NamedTuple

from ikebana.processor.authoring.proposing.proposal import Proposal, ProposedColumn

_WIDTH = 96
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_TYPE = re.compile(r"[A-Z][A-Z0-9_ ,()\[\]]*")
# Words that YAML does not read as text.
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

SAMPLE = """\
# A first pipeline: orders as they stand, and how much of each product is ordered.
# `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.
# All keys are in docs/pipeline-file.md; `ikebana schema` is for editors.

# Names the pipeline and its state: keep this name, and those below.
pipeline: first-orders

inputs:
  orders:
    # Messages such as 1 -> {"product": "tea", "quantity": 2}; one without a value deletes its key.
    topic: orders
    format: json
    columns: {product: VARCHAR, quantity: BIGINT}

operators:
  # The last value of each key.
  current: {upsert: orders}
  large: {linear: current, where: quantity > 9}
  ordered:
    reduce: current
    by: product
    aggregates: {quantity: sum(quantity)}

outputs:
  # Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.
  large: {from: large, topic: orders.large}
  # Messages of key and newest value, as in a compacted topic.
  ordered: {from: ordered, topic: orders.by-product, format: upsert}

# ingest: one time for each micro-batch, in milliseconds; offset: one for each record.
time: ingest

kafka:
  bootstrap.servers: %s
run:
  # What has to survive a restart.
  checkpoint: ./checkpoint-first-orders
"""


def sample(brokers: str) -> str:
    """Write an example file, which runs as soon as there is a topic `orders`."""
    return SAMPLE % quoted(brokers)


class InputNames(NamedTuple):
    """The names of what a file has for one topic: its input, the rows to publish, and the output.

    `rows` is an operator that keeps the last values, or the input itself if it is a collection.
    """

    input: str
    rows: str
    output: str


def names(proposals: Sequence[Proposal]) -> list[InputNames]:
    """Name the parts of a file for each proposal, so that no two of them have the same name.

    >>> names([Proposal("shop.orders")])
    [InputNames(input='shop_orders', rows='current', output='changes')]
    >>> names([Proposal("a.b"), Proposal("a-b")])[1]
    InputNames(input='a_b_2', rows='a_b_2_current', output='a_b_2_changes')
    """
    used: set[str] = set()

    def unused(name: str) -> str:
        numbered = (f"{name}_{number}" for number in count(2))
        chosen = next(each for each in chain([name], numbered) if each not in used)
        used.add(chosen)
        return chosen

    inputs = [unused(plan_name(proposal.topic)) for proposal in proposals]
    is_one = len(inputs) == 1
    return [
        InputNames(
            name,
            name if proposal.is_collection else unused("current" if is_one else f"{name}_current"),
            "changes" if is_one else f"{name}_changes",
        )
        for name, proposal in zip(inputs, proposals, strict=True)
    ]


def written(
    name: str, proposals: Sequence[Proposal], brokers: str, registry: str | None = None
) -> str:
    """Write a pipeline file that reads the proposed inputs and publishes each of them."""
    named = list(zip(names(proposals), proposals, strict=True))
    upserts = [part for part, proposal in named if not proposal.is_collection]
    lines = [
        f"# {heading(proposals)}",
        "# `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.",
        "# All keys are in docs/pipeline-file.md; `ikebana schema` is for editors.",
        "#",
        *(f"# {line}".rstrip() for line in comments(proposals)),
        "",
        "# Names the pipeline and its state: keep this name, and those below.",
        f"pipeline: {quoted(name)}",
        "",
        "inputs:",
        *(line for part, proposal in named for line in _input(proposal, part.input)),
    ]
    if upserts:
        lines += ["", "operators:", "  # The last value of each key."]
        for part in upserts:
            lines += [f"  {part.rows}:", f"    upsert: {part.input}"]
        lines += ["  # large:", f"  #   linear: {upserts[0].rows}", "  #   where: quantity > 9"]
    lines += [
        "",
        "outputs:",
        "  # Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.",
    ]
    for part, proposal in named:
        topic = quoted(f"{proposal.topic}.changes")
        lines += [f"  {part.output}:", f"    from: {part.rows}", f"    topic: {topic}"]
    lines += [
        "",
        "# ingest: one time for each micro-batch, in milliseconds; offset: one for each record.",
        "time: ingest",
        "",
        "kafka:",
        f"  bootstrap.servers: {quoted(brokers)}",
    ]
    if needs_registry(proposals):
        lines += ["registry:"]
        if registry is None:
            lines.append("  # A guess: name the registry that has the schemas.")
        lines.append(f"  url: {quoted(registry or 'http://localhost:8081')}")
    lines += ["run:", "  # What has to survive a restart."]
    lines += [f"  checkpoint: ./checkpoint-{name}"]
    return "\n".join(lines) + "\n"


def needs_registry(proposals: Sequence[Proposal]) -> bool:
    """Whether decoding any of the inputs needs a schema registry."""
    return any(proposal.needs_registry for proposal in proposals)


def heading(proposals: Sequence[Proposal]) -> str:
    """Return the first line of a file: which topics it is for."""
    topics = " and ".join(proposal.topic for proposal in proposals)
    return f"A first pipeline for the topic{'s' * (len(proposals) > 1)} {topics}."


def _input(proposal: Proposal, name: str) -> list[str]:
    """The input's lines in its section."""
    lines = [
        f"  {name}:",
        f"    topic: {quoted(proposal.topic)}",
        *_format(proposal),
    ]
    if proposal.mode == "append":
        lines.append("    # No message replaces another one.")
    if proposal.mode != "upsert":
        lines.append(f"    mode: {proposal.mode}")
    if proposal.options:
        options = ", ".join(f"{name}: {of}" for name, of in proposal.options.items())
        lines.append(f"    options: {{{options}}}")
    if proposal.tables is not None:
        lines += [
            "    # Other tables of the topic are not read.",
            f"    tables: {quoted(proposal.tables)}",
        ]
    if proposal.key_columns:
        columns = ", ".join(map(quoted, proposal.key_columns))
        lines += ["    # The columns of the key.", f"    key: [{columns}]"]
    if proposal.columns:
        lines.append("    # Take away what you do not want to be checked.")
        lines.append("    columns:")
        for column in proposal.columns:
            if column.comment:
                lines.append(f"      # {column.comment}")
            lines.append(f"      {quoted_name(column.name)}: {_declared(column)}")
    return lines


def _declared(column: ProposedColumn) -> str:
    kind = column.type if _TYPE.fullmatch(column.type) else quoted(column.type)
    if column.encoding is None:
        return kind
    # Within braces a comma ends the type.
    return f"{{type: {quoted(column.type)}, encoding: {quoted(column.encoding)}}}"


def comments(proposals: Sequence[Proposal]) -> list[str]:
    """Return the lines of a comment with all notes, each topic before its own if several."""
    notes: list[str] = []
    for proposal in proposals:
        if len(proposals) > 1:
            notes += [f"{proposal.topic}:"]
        notes += proposal.notes
    return [line for note in notes for line in wrap(_printable(note), _WIDTH)]


def plan_name(topic: str) -> str:
    """Make a plan's name from a topic's, which YAML and SQL read without quotes.

    >>> plan_name("shop.public.orders"), plan_name("2024")
    ('shop_public_orders', 'topic_2024')
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "_", topic).strip("_")
    return name if _PLAIN.fullmatch(name) and quoted(name) == name else f"topic_{name}".strip("_")


def formats(proposal: Proposal) -> str | tuple[str, str]:
    """Return the format of messages, or (key format, value format) if both must be named."""
    if proposal.value == proposal.key or proposal.value not in ("json", "bytes", "avro"):
        return proposal.value
    return proposal.key, proposal.value


def _format(proposal: Proposal) -> list[str]:
    match formats(proposal):
        case str(one):
            return [f"    format: {one}"]
        case key, value:
            return [f"    format: {{key: {key}, value: {value}}}"]


def quoted(text: str) -> str:
    """Quote a text for YAML, if it needs quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # Values of a file may have variables, so "${" is escaped; names have none.
    return _in_quotes(text.replace("${", "$${"))


def quoted_name(text: str) -> str:
    """Quote a name of the file, which stands before a colon, if it needs quotes."""
    return text if quoted(text) == text else _in_quotes(text)


def _in_quotes(text: str) -> str:
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return f'"{"".join(map(_escaped, text))}"'


def _printable(text: str) -> str:
    """A text with control characters escaped, since a line end in a name would end the comment."""
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    # JSON's pairs of surrogates are two characters in YAML.
    return character if character.isprintable() else f"\\U{ord(character):08x}"
