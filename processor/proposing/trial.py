"""Try a proposal on the messages that it was made from, and change what would not work.

The text is read as a pipeline file, and the messages by the decoder of its input.  Columns that a
pipeline file cannot declare are left out, and a column whose type does not take a value gets one
that takes all of them; notes say which and why.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.change import Change
from ikebana.codecs.column_encodings import full_name
from ikebana.errors import ConfigError
from ikebana.processor.configuring.pipeline import parse
from ikebana.processor.linear.scope import ExpressionError, StepError
from ikebana.processor.planning.plan import Input
from ikebana.processor.planning.planner import Reading
from ikebana.processor.proposing.formats import Sample
from ikebana.processor.proposing.kinds import JSON, Kind, of_values
from ikebana.processor.proposing.proposal import Proposal, ProposedColumn
from ikebana.processor.reading.codec_of import codec_of, needs_registry, takes_empty_for_null
from ikebana.processor.reading.column_types import ColumnTypes
from ikebana.processor.reading.images import untold
from ikebana.processor.reading.messages import Bad, Message, MessageReader, Origin

Write = Callable[[Proposal], str]
"""Writes a proposal as the text of a pipeline file."""


def tried(
    proposal: Proposal, samples: Sequence[Sample], schemas: Schemas | None, write: Write
) -> Proposal:
    """Change a proposal so that its text is a pipeline file that reads all of the messages.

    What it cannot change is noted: how many messages will be error records, and why.
    """
    proposal = _loadable(proposal, write)
    (source,) = parse(write(proposal), "new", environ={}).plan.inputs
    if source.traits.is_updates or (needs_registry(source) and schemas is None):
        return proposal
    rows, errors = _read(source, samples, schemas)
    if source.columns and ColumnTypes(source).wrong(rows):
        proposal = _widened(proposal, source, rows)
    notes = [f"{_messages(n)} of those seen will be error records: {why}." for why, n in errors]
    return proposal.noting(*notes)


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"


def _loadable(proposal: Proposal, write: Write) -> Proposal:
    """Leave out the columns that a pipeline file cannot declare."""
    if _refusal(proposal, write) is None:
        return proposal
    kept: list[ProposedColumn] = []
    notes = []
    for column in proposal.columns:
        refusal = _refusal(replace(proposal, columns=(*kept, column)), write)
        if refusal is None:
            kept.append(column)
        else:
            notes.append(f'Column "{column.name}" is not declared: {refusal}.')
    return replace(proposal, columns=tuple(kept)).noting(*notes)


def _refusal(proposal: Proposal, write: Write) -> str | None:
    """Why a pipeline file cannot be what is proposed; None if it can."""
    try:
        (source,) = parse(write(proposal), "new", environ={}).plan.inputs
        # These values are of no type: SQL is asked, and has to know the names.
        ColumnTypes(source).wrong([canonical.write({c.name: [] for c in source.columns})])
    except ConfigError as error:
        return str(error).splitlines()[-1].strip().rstrip(".")
    except (ExpressionError, StepError) as error:
        return str(error)
    return None


class _Read(NamedTuple):
    rows: list[bytes]
    errors: list[tuple[str, int]]


def _read(source: Input, samples: Sequence[Sample], schemas: Schemas | None) -> _Read:
    """The images of all rows, and the reasons why messages cannot be read, with their counts."""
    reader = MessageReader(source, codec_of(source, Reading(), schemas), Reading())
    empty = None if takes_empty_for_null(source) else b""
    messages = [
        Message(at, sample.key, sample.value or (empty if sample.value == b"" else None), headers)
        for at, sample in enumerate(samples)
        for headers in [sample.headers or None]
    ]
    rows: dict[bytes, None] = {}
    errors: Counter[str] = Counter()
    for _, found in reader.found(messages, Origin(source.topics[0], 0, ""), Counter()):
        if isinstance(found, Bad):
            errors[json.loads(found.record)["reason"]] += 1
            continue
        if source.mode == "diffs" and (lacking := next(filter(None, map(untold, found)), None)):
            errors[" ".join(lacking)] += 1
        rows |= dict.fromkeys(image for change in found for image in _images(change))
    return _Read(list(rows), errors.most_common())


def _images(change: Change) -> list[bytes]:
    return [image for image in (change.after, change.before) if image is not None]


_decode = canonical.decoder(dict[str, Any])


def _widened(proposal: Proposal, source: Input, rows: Sequence[bytes]) -> Proposal:
    """Give the columns whose types do not take all values one that takes them."""
    columns, notes = [], []
    for column, declared in zip(proposal.columns, source.columns, strict=True):
        wrong = ColumnTypes(replace(source, columns=(declared,))).wrong(rows)
        if not wrong:
            columns.append(column)
            continue
        values = [_decode(row).get(column.name) for row in rows]
        wide = (of_values(values) or Kind(JSON)).type
        encoding = column.encoding and full_name(column.type, column.encoding)
        if wide == JSON and encoding is None and source.traits.usual_encodings == "always":
            # The values are JSON themselves.
            encoding = "plain"
        columns.append(column._replace(type=wide, encoding=encoding))
        notes.append(
            f'Column "{column.name}" is {wide}: {column.type} does not take '
            f"{len(wrong)} of {len(rows)} values seen."
        )
    return replace(proposal, columns=tuple(columns)).noting(*notes)
