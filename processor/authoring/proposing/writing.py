"""Write proposals as a pipeline with comments: a file in YAML or in SQL, or a Python program.

`WRITERS` has one for each; without proposals it writes a sample.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from ikebana.codecs.formats import FORMATS, IN_REGISTRY
from ikebana.processor.authoring.proposing.formats import ProposedColumn

if TYPE_CHECKING:
    # A proposal is tried by reading it, which takes libraries that a sample need not wait for.
    from ikebana.processor.authoring.proposing.proposal import Proposal

_WIDTH = 96


class Writer(NamedTuple):
    """What writes pipelines in one form: an example without its brokers, texts, and proposals.

    `written` takes the name of the pipeline, proposals, brokers, and the URL of a registry or
    None.  The pipeline that it writes reads the proposed inputs and publishes each of them.
    """

    example: str
    quoted: Callable[[str], str]
    written: Callable[[str, Sequence["Proposal"], str, str | None], str]

    def sample(self, brokers: str) -> str:
        """Write an example, which runs as soon as there is a topic `orders`."""
        return self.example % self.quoted(brokers)


class InputNames(NamedTuple):
    """The names of what a file has for one topic: its input, the rows to publish, and the output.

    `rows` is an operator that keeps the last values, or the input itself if it is a collection.
    """

    input: str
    rows: str
    output: str


def names(proposals: Sequence["Proposal"]) -> list[InputNames]:
    """Name the parts of a file for each proposal, so that no two of them have the same name.

    >>> from ikebana.processor.authoring.proposing.proposal import Proposal
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


def needs_registry(proposals: Sequence["Proposal"]) -> bool:
    """Whether decoding any of the inputs needs a schema registry."""
    return any(proposal.needs_registry for proposal in proposals)


def heading(proposals: Sequence["Proposal"]) -> str:
    """Return the first line of a file: which topics it is for."""
    topics = " and ".join(proposal.topic for proposal in proposals)
    return f"A first pipeline for the topic{'s' * (len(proposals) > 1)} {topics}."


def comments(proposals: Sequence["Proposal"]) -> list[str]:
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
    return (
        name
        if _PLAIN_IN_YAML.fullmatch(name) and in_yaml(name) == name
        else f"topic_{name}".strip("_")
    )


def formats(proposal: "Proposal") -> str | tuple[str, str]:
    """Return the format of messages, or (key format, value format) if both must be named."""
    if proposal.value == proposal.key or proposal.value not in ("json", "bytes", *IN_REGISTRY):
        return proposal.value
    return proposal.key, proposal.value


_PLAIN_IN_YAML = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_TYPE_IN_YAML = re.compile(r"[A-Z][A-Z0-9_ ,()\[\]]*")
# Words that YAML does not read as text.
_WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_YAML_SAMPLE = """\
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


def _written_in_yaml(
    name: str, proposals: Sequence["Proposal"], brokers: str, registry: str | None = None
) -> str:
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
        f"pipeline: {in_yaml(name)}",
        "",
        "inputs:",
        *(line for part, proposal in named for line in _yaml_input(proposal, part.input)),
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
        topic = in_yaml(proposal.output_topic)
        lines += [f"  {part.output}:", f"    from: {part.rows}", f"    topic: {topic}"]
    lines += [
        "",
        "# ingest: one time for each micro-batch, in milliseconds; offset: one for each record.",
        "time: ingest",
        "",
        "kafka:",
        f"  bootstrap.servers: {in_yaml(brokers)}",
    ]
    if needs_registry(proposals):
        lines += ["registry:"]
        if registry is None:
            lines.append("  # A guess: name the registry that has the schemas.")
        lines.append(f"  url: {in_yaml(registry or 'http://localhost:8081')}")
    lines += ["run:", "  # What has to survive a restart."]
    lines += [f"  checkpoint: ./checkpoint-{name}"]
    return "\n".join(lines) + "\n"


def _yaml_input(proposal: "Proposal", name: str) -> list[str]:
    """The input's lines in its section."""
    lines = [
        f"  {name}:",
        f"    topic: {in_yaml(proposal.topic)}",
        *_yaml_format(proposal),
    ]
    if proposal.mode == "append":
        lines.append("    # No message replaces another one.")
    if proposal.mode != "upsert":
        lines.append(f"    mode: {proposal.mode}")
    if proposal.options:
        options = ", ".join(f"{name}: {in_yaml(of)}" for name, of in proposal.options.items())
        lines.append(f"    options: {{{options}}}")
    if proposal.tables is not None:
        lines += [
            "    # Other tables of the topic are not read.",
            f"    tables: {in_yaml(proposal.tables)}",
        ]
    if proposal.key_columns:
        columns = ", ".join(map(in_yaml, proposal.key_columns))
        lines += ["    # The columns of the key.", f"    key: [{columns}]"]
    if proposal.columns:
        lines.append("    # Take away what you do not want to be checked.")
        lines.append("    columns:")
        for column in proposal.columns:
            if column.comment:
                lines.append(f"      # {column.comment}")
            lines.append(f"      {column_in_yaml(column)}")
    return lines


def column_in_yaml(column: ProposedColumn) -> str:
    """Write the declaration of a column, with quotes where YAML needs them.

    >>> column_in_yaml(ProposedColumn("a b", "STRUCT(x DOUBLE)"))
    '"a b": "STRUCT(x DOUBLE)"'
    >>> column_in_yaml(ProposedColumn("price", "DECIMAL(9,2)", "decimal"))
    'price: {type: "DECIMAL(9,2)", encoding: decimal}'
    """
    kind = column.type if _TYPE_IN_YAML.fullmatch(column.type) else in_yaml(column.type)
    if column.encoding is not None:
        # Within braces a comma ends the type.
        kind = f"{{type: {in_yaml(column.type)}, encoding: {in_yaml(column.encoding)}}}"
    return f"{name_in_yaml(column.name)}: {kind}"


def _yaml_format(proposal: "Proposal") -> list[str]:
    match formats(proposal):
        case str(one):
            return [f"    format: {one}"]
        case key, value:
            return [f"    format: {{key: {key}, value: {value}}}"]


def in_yaml(text: str) -> str:
    """Quote a text for YAML, if it needs quotes."""
    if _PLAIN_IN_YAML.fullmatch(text) and text.lower() not in _WORDS_OF_YAML:
        return text
    # Values of a file may have variables, so "${" is escaped; names have none.
    return _yaml_in_quotes(text.replace("${", "$${"))


def name_in_yaml(text: str) -> str:
    """Quote a name of the file, which stands before a colon, if it needs quotes."""
    return text if in_yaml(text) == text else _yaml_in_quotes(text)


def _yaml_in_quotes(text: str) -> str:
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


_PLAIN_IN_SQL = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SQL_SAMPLE = """\
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


def _written_in_sql(
    name: str, proposals: Sequence["Proposal"], brokers: str, registry: str | None = None
) -> str:
    named = list(zip(names(proposals), proposals, strict=True))
    upserts = [part for part, proposal in named if not proposal.is_collection]
    settings = [
        "    -- ingest: one time for each micro-batch, in milliseconds; offset: one for each "
        "record.",
        "    time = ingest,",
        f"    kafka = (bootstrap.servers = {in_sql(brokers)}),",
    ]
    if needs_registry(proposals):
        if registry is None:
            settings.append("    -- A guess: name the registry that has the schemas.")
        settings.append(f"    registry = (url = {in_sql(registry or 'http://localhost:8081')}),")
    settings += [
        "    -- The checkpoint has to survive a restart.",
        f"    run = (checkpoint = {in_sql(f'./checkpoint-{name}')}));",
    ]
    lines = [
        f"-- {heading(proposals)}",
        "-- `ikebana explain FILE` says what it will do, `ikebana run FILE` runs it.",
        "-- docs/sql.md has all statements, docs/pipeline-file.md all options.",
        "--",
        *(f"-- {line}".rstrip() for line in comments(proposals)),
        "",
        "-- Names the pipeline and its state: keep this name, and those below.",
        f"CREATE PIPELINE {name_in_sql(name)} WITH (",
        *settings,
        "",
    ]
    for part, proposal in named:
        lines += [*_sql_source(proposal, part.input), ""]
    if upserts:
        lines.append("-- The last value of each key.")
        for part in upserts:
            with_ = f"WITH (upsert = {name_in_sql(part.input)})"
            lines.append(f"CREATE OPERATOR {name_in_sql(part.rows)} {with_};")
        large = f"SELECT * FROM {name_in_sql(upserts[0].rows)} WHERE quantity > 9"
        lines += [f"-- CREATE VIEW large AS {large};", ""]
    lines.append(
        "-- Updates (data, time, diff): an old value leaves with -1, a new one comes with +1."
    )
    for part, proposal in named:
        into = f"INTO KAFKA (topic = {in_sql(proposal.output_topic)})"
        lines.append(
            f"CREATE SINK {name_in_sql(part.output)} FROM {name_in_sql(part.rows)} {into};"
        )
    return "\n".join(lines) + "\n"


def in_sql(value: str) -> str:
    """Write a text as a value of a SQL pipeline file.

    >>> in_sql("it's ${HERE}")
    "'it''s $${HERE}'"
    """
    return "'" + value.replace("'", "''").replace("${", "$${") + "'"


def name_in_sql(name: str) -> str:
    """Quote a name, if it needs quotes.

    >>> name_in_sql("product"), name_in_sql("shop-totals")
    ('product', '"shop-totals"')
    """
    return name if _PLAIN_IN_SQL.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _sql_source(proposal: "Proposal", name: str) -> list[str]:
    options = [f"topic = {in_sql(proposal.topic)}", f"format = {_sql_format(proposal)}"]
    if proposal.mode != "upsert":
        options.append(f"mode = {proposal.mode}")
    if proposal.options:
        of = ", ".join(
            f"{name_in_sql(key)} = {in_sql(value)}" for key, value in proposal.options.items()
        )
        options.append(f"options = ({of})")
    if proposal.tables is not None:
        options.append(f"tables = {in_sql(proposal.tables)}")
    if proposal.key_columns:
        options.append(f"key = ({', '.join(map(in_sql, proposal.key_columns))})")
    lines = []
    if proposal.mode == "append":
        lines.append("-- No message replaces another one.")
    if proposal.tables is not None:
        lines.append("-- Other tables of the topic are not read.")
    source = f"FROM KAFKA ({', '.join(options)});"
    if not proposal.columns:
        return [*lines, f"CREATE SOURCE {name_in_sql(name)}", f"    {source}"]
    return [
        *lines,
        "-- Take away the columns that you do not want to be checked.",
        f"CREATE SOURCE {name_in_sql(name)} (",
        *_sql_columns(proposal.columns),
        f") {source}",
    ]


def _sql_columns(columns: Sequence[ProposedColumn]) -> list[str]:
    lines = []
    for number, column in enumerate(columns, start=1):
        if column.comment:
            lines.append(f"    -- {column.comment}")
        encoding = "" if column.encoding is None else f" ENCODING {in_sql(column.encoding)}"
        end = "," if number < len(columns) else ""
        lines.append(f"    {name_in_sql(column.name)} {column.type}{encoding}{end}")
    return lines


def _sql_format(proposal: "Proposal") -> str:
    match formats(proposal):
        case str(one):
            return in_sql(one)
        case key, value:
            return f"(key = {in_sql(key)}, value = {in_sql(value)})"


_COLLECTIONS = {"append": "rows()", "diffs": "changes()"}
_PYTHON_SAMPLE = '''\
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


def _written_in_python(
    name: str, proposals: Sequence["Proposal"], brokers: str, registry: str | None = None
) -> str:
    settings = ""
    if needs_registry(proposals):
        url = in_python(registry or "http://localhost:8081")
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
        f'pipeline = ik.Pipeline({in_python(name)}, time="ingest")',
    ]
    for number, (part, proposal) in enumerate(zip(names(proposals), proposals, strict=True), 1):
        end = "" if len(proposals) == 1 else f"_{number}"
        lines += _python_output(part, proposal, end, is_first=number == 1)
    lines += ["", 'if __name__ == "__main__":']
    if needs_registry(proposals) and registry is None:
        lines.append("    # A guess: name the registry that has the schemas.")
    lines += [
        "    # The checkpoint has to survive a restart.",
        "    pipeline.run(",
        f"        {in_python(brokers)},",
        f"        checkpoint={in_python(f'./checkpoint-{name}')},",
        *([f"        {settings},"] if settings else []),
        "    )",
    ]
    return "\n".join(lines) + "\n"


def _python_output(
    part: InputNames, proposal: "Proposal", end: str, *, is_first: bool
) -> list[str]:
    """Read an input and publish it; the names of variables have this `end`."""
    read = _COLLECTIONS.get(proposal.mode, f"upsert({in_python(part.rows)})")
    lines = [
        f"source{end} = pipeline.topic(",
        *_python_input(proposal, part.input),
        f"current{end} = source{end}.{read}",
    ]
    if is_first:
        lines += [
            f'# current{end}.where("quantity > 9").named("large").to("large")',
            "# Updates (data, time, diff): an old value leaves with -1, a new one comes with +1.",
        ]
    changes = in_python(proposal.output_topic)
    return [*lines, f"current{end}.to({changes}, name={in_python(part.output)})"]


def in_python(value: str) -> str:
    """Write a text as Python does, in double quotes.

    >>> in_python('say "tea"')
    '"say \\\\"tea\\\\""'
    """
    return json.dumps(value, ensure_ascii=False)


def _python_input(proposal: "Proposal", name: str) -> list[str]:
    lines = [f"    {in_python(proposal.topic)},", f"    name={in_python(name)},"]
    lines.append(f"    format={in_python(proposal.value)},")
    key = FORMATS[proposal.value].usual_key if isinstance(formats(proposal), str) else proposal.key
    if key != "json":
        lines.append(f"    key_format={in_python(key)},")
    if proposal.options:
        options = ", ".join(
            f"{in_python(key)}: {in_python(of)}" for key, of in proposal.options.items()
        )
        lines.append(f"    options={{{options}}},")
    if proposal.tables is not None:
        lines.append("    # Other tables of the topic are not read.")
        lines.append(f"    tables={in_python(proposal.tables)},")
    if proposal.key_columns:
        lines.append(f"    key=[{', '.join(map(in_python, proposal.key_columns))}],")
    if proposal.columns:
        lines.append("    # Take away the columns that you do not want to be checked.")
        lines.append("    columns=[")
        for column in proposal.columns:
            if column.comment:
                lines.append(f"        # {column.comment}")
            encoding = (
                "" if column.encoding is None else f", encoding={in_python(column.encoding)}"
            )
            lines.append(
                f"        ik.Column({in_python(column.name)}, {in_python(column.type)}{encoding}),"
            )
        lines.append("    ],")
    return [*lines, ")"]


WRITERS: Mapping[str, Writer] = {
    "yaml": Writer(_YAML_SAMPLE, in_yaml, _written_in_yaml),
    "sql": Writer(_SQL_SAMPLE, in_sql, _written_in_sql),
    "python": Writer(_PYTHON_SAMPLE, in_python, _written_in_python),
}
