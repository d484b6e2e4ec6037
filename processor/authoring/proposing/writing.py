"""Write a proposal as a pipeline file in YAML, with comments."""

import re
from textwrap import wrap

from ikebana.processor.authoring.proposing.proposal import Proposal, ProposedColumn

_WIDTH = 96
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_TYPE = re.compile(r"[A-Z][A-Z0-9_ ,()\[\]]*")
# Words that YAML does not read as text.
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

SAMPLE = """\
# A first pipeline: orders as they stand, and how much of each product is ordered.
# `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.
# Every key that can stand here is in docs/pipeline-file.md; `ikebana schema` is for editors.

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


def written(proposal: Proposal, brokers: str, registry: str | None = None) -> str:
    """Write a pipeline file that reads the proposed input and publishes it."""
    name = plan_name(proposal.topic)
    shown = name if proposal.is_collection else "current"
    lines = [
        f"# A first pipeline for the topic {proposal.topic}.",
        "# `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.",
        "# Every key that can stand here is in docs/pipeline-file.md; `ikebana schema` is for "
        "editors.",
        "#",
        *(f"# {line}" for line in comments(proposal)),
        "",
        "# Names the pipeline and its state: keep this name, and those below.",
        f"pipeline: {name}-first",
        "",
        *_input(proposal, name),
    ]
    if not proposal.is_collection:
        lines += ["", "operators:", "  # The last value of each key."]
        lines += ["  current:", f"    upsert: {name}"]
        lines += ["  # large:", "  #   linear: current", "  #   where: quantity > 9"]
    lines += [
        "",
        "outputs:",
        "  # Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.",
        "  changes:",
        f"    from: {shown}",
        f"    topic: {name}.changes",
        "",
        "# ingest: one time for each micro-batch, in milliseconds; offset: one for each record.",
        "time: ingest",
        "",
        "kafka:",
        f"  bootstrap.servers: {quoted(brokers)}",
    ]
    if proposal.needs_registry:
        lines += ["registry:"]
        if registry is None:
            lines.append("  # A guess: name the registry that has the schemas.")
        lines.append(f"  url: {quoted(registry or 'http://localhost:8081')}")
    lines += ["run:", "  # What has to survive a restart.", f"  checkpoint: ./checkpoint-{name}"]
    return "\n".join(lines) + "\n"


def _input(proposal: Proposal, name: str) -> list[str]:
    """The section of the input."""
    lines = [
        "inputs:",
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


def comments(proposal: Proposal) -> list[str]:
    """Return the lines of a comment with the proposal's notes."""
    return [line for note in proposal.notes for line in wrap(_printable(note), _WIDTH)]


def plan_name(topic: str) -> str:
    """Make a plan's name from a topic's, such that YAML reads it as text.

    >>> plan_name("shop.public.orders"), plan_name("2024")
    ('shop-public-orders', 'topic-2024')
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", topic).strip("-_")
    return name if _PLAIN.fullmatch(name) and quoted(name) == name else f"topic-{name}".strip("-")


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
