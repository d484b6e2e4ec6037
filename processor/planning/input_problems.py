"""Problems of a single input: its format, its columns and its times."""

import re
from collections import Counter
from collections.abc import Iterator

from ikebana.codecs.change import DeclaredColumns, Needs
from ikebana.codecs.column_encodings import encoding
from ikebana.codecs.formats import FORMATS, IN_REGISTRY
from ikebana.codecs.sql_type import TypeTextError
from ikebana.errors import ConfigError
from ikebana.processor.base.spelling import instead
from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.json_text import field_of
from ikebana.processor.linear.results import result_of
from ikebana.processor.linear.scope import SHORT, VALUE, ExpressionError, is_ours
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import starts
from ikebana.processor.planning.histories import history_problems
from ikebana.processor.planning.input_rows import encoding_of, rows_of
from ikebana.processor.planning.operators.kind import Problem
from ikebana.processor.planning.plan import METADATA_TYPES, SOURCE_CLOCKS, Input
from ikebana.processor.planning.transaction_topics import collections_of
from ikebana.processor.planning.unread import Unread


def input_problems(source: Input, unread: Unread) -> Iterator[Problem]:
    """All problems of an input, whatever reads it."""
    path = f"inputs.{source.name}"
    if not source.topics:
        yield f"{path}.topic", "at least one topic is needed"
    yield from _mode_problems(source)
    yield from _key_problems(source)
    yield from _option_problems(source)
    yield from _column_problems(source)
    yield from _metadata_problems(source)
    yield from history_problems(source)
    if source.on_new_column == "add" and not (source.columns and source.traits.codec):
        yield f"{path}.on_new_column", "adds to declared columns: without any, all are read"
    if source.size is not None and source.size < 1:
        yield f"{path}.size", "must be at least 1"
    if isinstance(starts.place_of(source.start), starts.AtOffsets) and len(source.topics) > 1:
        yield f"{path}.start", "offsets are those of one topic: make an input of each topic"
    yield from _time_problems(source, unread)


def _mode_problems(source: Input) -> Iterator[Problem]:
    """Problems of an input's mode and tables, which its format may not allow."""
    path, traits = f"inputs.{source.name}", source.traits
    plain = traits.kind == "rows"
    if source.mode == "diffs" and not (traits.old_images or traits.is_updates):
        yield (
            f"{path}.mode",
            f'"diffs" needs messages with old images; {source.value_format} has none'
            + ('; with "append" each is a row of its own' if plain else ""),
        )
    if source.mode == "append" and not plain:
        yield f"{path}.mode", f'"append" is for rows that stay; {source.value_format} has changes'
    if source.tables is not None:
        if plain:
            yield f"{path}.tables", f"{source.value_format} messages name no table"
        try:
            re.compile(source.tables)
        except re.error as error:
            yield f"{path}.tables", f"is not a regular expression: {error}"
        if "table" in traits.options and "table" not in dict(source.options):
            yield (
                f"{path}.options.table",
                "is missing: the field with the names that tables choose",
            )


def _key_problems(source: Input) -> Iterator[Problem]:
    """Problems of an input's key and schemas, which its format may not allow."""
    path, traits = f"inputs.{source.name}", source.traits
    if source.key and traits.key_from == "kafka":
        yield f"{path}.key", f"the key of {source.value_format} messages is the Kafka key"
    if source.schema is not None and not (traits.in_registry and traits.encoding == "avro"):
        yield f"{path}.schema", f"{source.value_format} values are not read by an Avro schema"
    if source.key_format in IN_REGISTRY and source.key_format != traits.encoding:
        problem = f"a key in {source.key_format} goes with values in it, not {source.value_format}"
        yield f"{path}.format.key", problem
    if not source.key and traits.key_from == "columns" and source.mode == "upsert":
        yield (
            f"{path}.key",
            f"is needed: messages of {source.value_format} do not say what their key is",
        )


def _option_problems(source: Input) -> Iterator[Problem]:
    """Options that the format of an input does not have, and values that are not allowed."""
    path, options = f"inputs.{source.name}.options", source.traits.options
    are_all_known = True
    for name, value in source.options:
        problem = ""
        if name not in options:
            problem = f"is no option of {source.value_format}{instead(name, options)}"
        elif options[name].choices and value not in options[name].choices:
            problem = f'is "{value}"; set it to one of: {", ".join(options[name].choices)}'
        elif not value and not options[name].may_be_empty:
            problem = "must not be empty"
        if problem:
            are_all_known = False
            yield f"{path}.{name}", problem
    if source.options and are_all_known and not source.traits.in_registry:
        yield from _problems_together(source)


def _problems_together(source: Input) -> Iterator[Problem]:
    """Options that exclude each other; the codec reports them."""
    declared = DeclaredColumns({column.name: column.type for column in source.columns})
    needs = Needs(
        key=source.key,
        options=dict(source.options),
        declared=declared,
        diffs=source.mode == "diffs",
    )
    assert source.traits.codec is not None, f"{source.value_format} has options without a codec"
    try:
        source.traits.codec(needs, source.key_format, None)
    except ConfigError as error:
        yield f"inputs.{source.name}.options", "; ".join(str(error).splitlines())


def _column_problems(source: Input) -> Iterator[Problem]:
    """Problems of the declared columns of an input."""
    path = f"inputs.{source.name}"
    if source.columns and not source.traits.has_columns:
        yield f"{path}.columns", "bytes have no columns"
    declared = [column.name for column in source.columns]
    named = {"key": source.key, "unique": dict.fromkeys(c for key in source.unique for c in key)}
    for part, columns in named.items():
        for name in columns:
            if declared and name not in declared:
                yield f"{path}.{part}", f'there is no column "{name}"{instead(name, declared)}'
    for name, count in Counter(column.name for column in source.columns).items():
        if count > 1:
            yield f"{path}.columns.{name}", f"is declared {count} times"
    for column in source.columns:
        if is_ours(column.name):
            yield (
                f"{path}.columns.{column.name}",
                f"no column can be named so; leave it out: a field of it is "
                f"{field_of(VALUE, column.name)}",
            )
        try:
            column_type(column.type)
        except ExpressionError as error:
            yield f"{path}.columns.{column.name}", str(error)
        if column.encoding is not None and source.traits.is_updates:
            problem = "updates have their values as they were written; leave it out"
            yield f"{path}.columns.{column.name}.encoding", problem
        elif column.encoding is not None:
            try:
                encoding(encoding_of(source, column) or "")
            except TypeTextError:
                continue  # the type is told
            except ValueError as error:
                yield f"{path}.columns.{column.name}.encoding", str(error)


def _metadata_problems(source: Input) -> Iterator[Problem]:
    """Problems of the metadata columns of an input."""
    path = f"inputs.{source.name}.metadata"
    if not source.metadata:
        return
    if source.traits.is_updates:
        yield path, f"updates of {source.value_format} are no longer the messages that set rows"
    elif source.mode == "diffs":
        yield path, "an old image does not say which message had set it: read the input as upserts"
    elif not source.traits.has_columns:
        yield path, "bytes have no columns"
    declared = {column.name.lower() for column in source.columns}
    counts = Counter(name.lower() for name, _ in source.metadata)
    for name, kind in source.metadata:
        if name.lower() in declared or counts[name.lower()] > 1:
            yield f"{path}.{name}", "is a column already; give it another name"
        elif is_ours(name) or name.lower() in SHORT:
            yield f"{path}.{name}", "no column of metadata can be named so"
        if kind not in METADATA_TYPES:
            listed = ", ".join(METADATA_TYPES)
            yield f"{path}.{name}", f'"{kind}" is none of {listed}'


def _time_problems(source: Input, unread: Unread) -> Iterator[Problem]:
    """Problems of an input's times."""
    path = f"inputs.{source.name}"
    if source.traits.is_updates:
        if source.mode != "diffs":
            yield f"{path}.mode", f'{source.value_format} has updates: it must be "diffs"'
        if source.start != "earliest":
            yield f"{path}.start", "updates make a collection only from the earliest on"
        if source.traits.kind == "updates" and len(source.topics) != 1:
            yield f"{path}.topic", "a diff topic has its own progress: one input for each"
        if source.event_time is not None:
            yield f"{path}.event_time", f"updates of {source.value_format} have times already"
        return
    event = source.event_time
    if event is None:
        return
    if (event.of is None) == (event.clock is None):
        yield f"{path}.event_time", 'needs one of "of" and "clock"'
    if event.clock in SOURCE_CLOCKS and not source.traits.source_clocks:
        have = " or ".join(name for name, its in FORMATS.items() if its.source_clocks)
        yield f"{path}.event_time.clock", f'"{event.clock}" is a clock of {have}'
    transactions = event.transactions
    if (transactions is None) == (event.clock == "transaction"):
        problem = "is needed with" if transactions is None else "is only for"
        yield f"{path}.event_time.transactions", f"{problem} clock: transaction"
    elif transactions is not None:
        if source.start != "earliest":
            yield f"{path}.start", "transactions are whole only from the earliest on"
        try:
            collections_of(source.topics, transactions)
        except ConfigError as error:
            yield f"{path}.event_time.transactions", str(error).splitlines()[0]
    for part in ("lateness", "idle", "ahead"):
        if (getattr(event, part + "_ms") or 0) < 0:
            yield f"{path}.event_time.{part}", "must be 0 seconds or more"
    if event.of is not None:
        result = result_of((Sql(valid_from=event.of),), rows_of(source, unread))
        for each in result.problems:
            yield f"{path}.event_time.of", each.problem
