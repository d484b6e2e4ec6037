"""Write a proposal as a pipeline file in SQL, with comments."""

import re
from collections.abc import Sequence

from ikebana.processor.authoring.proposing.proposal import Proposal, ProposedColumn
from ikebana.processor.authoring.proposing.writing import (
    comments,
    formats,
    heading,
    names,
    needs_registry,
)

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)

SAMPLE = """\
-- A first pipeline: the current orders, and how much of each product is ordered.
-- `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.
-- docs/sql.md has all statements, docs/pipeline-file.md all options.

-- Names the pipeline and its state: keep this name, and those below.
CREATE PIPELINE first-orders WITH (
    -- ingest: one time for each micro-batch, in milliseconds; offset: one for each record.
    time = ingest,
    kafka = (bootstrap.servers = %s),
    -- The checkpoint has to survive a restart.
    run = (checkpoint = './checkpoint-first-orders'));

-- Messages such as 1 -> {"product": "tea", "quantity": 2}; one without a value deletes its key.
CREATE SOURCE orders (product VARCHAR, quantity BIGINT)
    FROM KAFKA (topic = 'orders', format = json);

-- The last value of each key.
CREATE OPERATOR current WITH (upsert = orders);

CREATE VIEW large AS SELECT * FROM current WHERE quantity > 9;

CREATE VIEW ordered AS
    SELECT product, sum(quantity) AS quantity FROM current GROUP BY product;

-- Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.
CREATE SINK large FROM large INTO KAFKA (topic = 'orders.large');
-- Messages of key and newest value, as in a compacted topic.
CREATE SINK ordered FROM ordered INTO KAFKA (topic = 'orders.by-product', format = upsert);
"""


def sample(brokers: str) -> str:
    """Write an example file, which runs as soon as there is a topic `orders`."""
    return SAMPLE % text(brokers)


def written(
    name: str, proposals: Sequence[Proposal], brokers: str, registry: str | None = None
) -> str:
    """Write a pipeline file that reads the proposed inputs and publishes each of them."""
    named = list(zip(names(proposals), proposals, strict=True))
    upserts = [part for part, proposal in named if not proposal.is_collection]
    settings = [
        "    -- ingest: one time for each micro-batch, in milliseconds; offset: one for each "
        "record.",
        "    time = ingest,",
        f"    kafka = (bootstrap.servers = {text(brokers)}),",
    ]
    if needs_registry(proposals):
        if registry is None:
            settings.append("    -- A guess: name the registry that has the schemas.")
        settings.append(f"    registry = (url = {text(registry or 'http://localhost:8081')}),")
    settings += [
        "    -- The checkpoint has to survive a restart.",
        f"    run = (checkpoint = {text(f'./checkpoint-{name}')}));",
    ]
    lines = [
        f"-- {heading(proposals)}",
        "-- `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.",
        "-- docs/sql.md has all statements, docs/pipeline-file.md all options.",
        "--",
        *(f"-- {line}".rstrip() for line in comments(proposals)),
        "",
        "-- Names the pipeline and its state: keep this name, and those below.",
        f"CREATE PIPELINE {quoted(name)} WITH (",
        *settings,
        "",
    ]
    for part, proposal in named:
        lines += [*_source(proposal, part.input), ""]
    if upserts:
        lines.append("-- The last value of each key.")
        for part in upserts:
            with_ = f"WITH (upsert = {quoted(part.input)})"
            lines.append(f"CREATE OPERATOR {quoted(part.rows)} {with_};")
        large = f"SELECT * FROM {quoted(upserts[0].rows)} WHERE quantity > 9"
        lines += [f"-- CREATE VIEW large AS {large};", ""]
    lines.append(
        "-- Updates (data, time, diff): an old value leaves with -1, a new one comes with +1."
    )
    for part, proposal in named:
        into = f"INTO KAFKA (topic = {text(f'{proposal.topic}.changes')})"
        lines.append(f"CREATE SINK {quoted(part.output)} FROM {quoted(part.rows)} {into};")
    return "\n".join(lines) + "\n"


def text(value: str) -> str:
    """Write a text as a value of a SQL pipeline file.

    >>> text("it's ${HERE}")
    "'it''s $${HERE}'"
    """
    return "'" + value.replace("'", "''").replace("${", "$${") + "'"


def quoted(name: str) -> str:
    """Quote a name, if it needs quotes.

    >>> quoted("product"), quoted("shop-totals")
    ('product', '"shop-totals"')
    """
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _source(proposal: Proposal, name: str) -> list[str]:
    options = [f"topic = {text(proposal.topic)}", f"format = {_format(proposal)}"]
    if proposal.mode != "upsert":
        options.append(f"mode = {proposal.mode}")
    if proposal.options:
        of = ", ".join(f"{quoted(key)} = {text(value)}" for key, value in proposal.options.items())
        options.append(f"options = ({of})")
    if proposal.tables is not None:
        options.append(f"tables = {text(proposal.tables)}")
    if proposal.key_columns:
        options.append(f"key = ({', '.join(map(text, proposal.key_columns))})")
    lines = []
    if proposal.mode == "append":
        lines.append("-- No message replaces another one.")
    if proposal.tables is not None:
        lines.append("-- Other tables of the topic are not read.")
    source = f"FROM KAFKA ({', '.join(options)});"
    if not proposal.columns:
        return [*lines, f"CREATE SOURCE {quoted(name)}", f"    {source}"]
    return [
        *lines,
        "-- Take away the columns that you do not want to be checked.",
        f"CREATE SOURCE {quoted(name)} (",
        *_columns(proposal.columns),
        f") {source}",
    ]


def _columns(columns: Sequence[ProposedColumn]) -> list[str]:
    lines = []
    for number, column in enumerate(columns, start=1):
        if column.comment:
            lines.append(f"    -- {column.comment}")
        encoding = "" if column.encoding is None else f" ENCODING {text(column.encoding)}"
        end = "," if number < len(columns) else ""
        lines.append(f"    {quoted(column.name)} {column.type}{encoding}{end}")
    return lines


def _format(proposal: Proposal) -> str:
    match formats(proposal):
        case str(one):
            return text(one)
        case key, value:
            return f"(key = {text(key)}, value = {text(value)})"
