"""The history of an input: rows of files that are read before its topics.

It stands beside the topics under a name of its own: each file is a partition of it, and a row has
the offset of its place.  So offsets, batches and limits are those of topics.  While any of it is
unread, the input's topics stay where they are.  The rows are keyed JSON, whatever the format of
the topics: `rows_of` is the input that reads them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from ikebana.processor.base.offsets import Positions
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_times import Base, InputTimes, RowFile
from ikebana.processor.topics.source_offset import SourceOffset


def rows_of(source: Input) -> Input:
    """The input that reads the rows of a history."""
    # Encodings are of messages: files have values as they are.
    columns = tuple(msgspec.structs.replace(column, encoding=None) for column in source.columns)
    plain = replace(source, columns=columns, schema=None, tables=None, history=None)
    options = dict(source.options)
    if "sequence" not in options:
        return replace(plain, value_format="json", key_format="json", options=())
    # Rows have a place in the order of the source as messages have.
    order = {name: options[name] for name in ("sequence", "deleted") if name in options}
    order.setdefault("deleted", "deleted")
    return replace(plain, value_format="changes", key_format="json", options=tuple(order.items()))


def key_columns(source: Input) -> tuple[tuple[str, ...], bool]:
    """The columns of the key of a history's rows, and whether it is the value of the only one."""
    history = source.history
    if source.key or history is None:
        return source.key, False
    return history.key, history.bare


def files_of(plan: Plan) -> dict[str, list[RowFile]]:
    """The files of the inputs that have a history, as they are now.

    Raises:
        SourceError: there are none, or one cannot be read.
    """
    sources = [source for source in plan.inputs if source.history is not None]
    if not sources:
        return {}
    # Few pipelines have files, and pyarrow takes a while to import.
    from ikebana.processor.topics import row_files

    return {
        source.name: row_files.list_files(source.name, source.history.files)
        if source.history.files
        else row_files.table_files(source.name, source.history)
        for source in sources
        if source.history is not None
    }


def before_topics(plan: Plan, last: SourceOffset, ends: Positions) -> Positions:
    """The ends of histories as well, and those of topics that wait for one where they are."""
    ends_of_all = dict(ends)
    for source, base in _unread(plan, last.input_times, last.positions):
        ends_of_all[base.topic] = dict(base.ends)
        for topic in source.topics:
            at = last.positions.get(topic, {})
            ends_of_all[topic] = {p: at[p] for p in ends.get(topic, {}) if p in at}
    return ends_of_all


def without_read(
    plan: Plan, last: SourceOffset, by_input: Mapping[str, InputTimes]
) -> dict[str, InputTimes]:
    """What is known of inputs, without the histories that were read up to the batch `last`."""
    unread = {source.name for source, _ in _unread(plan, by_input, last.positions)}
    return {
        name: times
        if times.base is None or not times.base.files or name in unread
        else msgspec.structs.replace(times, base=None)
        for name, times in by_input.items()
    }


def _unread(
    plan: Plan, by_input: Mapping[str, InputTimes], positions: Positions
) -> Iterator[tuple[Input, Base]]:
    for source in plan.inputs:
        base = by_input[source.name].base if source.name in by_input else None
        if base is None or not base.files:
            continue
        read = positions.get(base.topic, {})
        if any(read.get(at, 0) < end for at, end in base.ends.items()):
            yield source, base
