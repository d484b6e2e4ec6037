"""Try a proposal on the messages that it was made from, and repair what does not work.

The text is parsed as a pipeline file, and its input decodes the messages.  Columns that a pipeline
file cannot declare are left out.  If a column's type does not fit a value, the column gets a type
that fits all values.  Notes say which and why.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.column_encodings import full_name
from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.authoring.proposing.kinds import Kind, of_values
from ikebana.processor.authoring.proposing.look import look
from ikebana.processor.authoring.proposing.proposal import Proposal, ProposedColumn
from ikebana.processor.base.texts import counted
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import ExpressionError, StepError
from ikebana.processor.planning.plan import Input
from ikebana.processor.topics.input_codec import ColumnTypes, needs_registry
from ikebana.processor.topics.messages import Message

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
    messages = [Message(at, *sample) for at, sample in enumerate(samples)]
    seen = look(source, messages, schemas)
    rows = [canonical.write(row) for row in seen.rows]
    if source.columns and ColumnTypes(source).wrong(rows):
        proposal = _widened(proposal, source, rows)
        (source,) = parse(write(proposal), "new", environ={}).plan.inputs
        seen = look(source, messages, schemas)
    reasons = seen.reasons.most_common()
    notes = [
        f"{counted(n, 'message')} of those seen will be error records: {why}."
        for why, n in reasons
    ]
    return proposal.noting(*notes)


def _loadable(proposal: Proposal, write: Write) -> Proposal:
    """Leave out the columns that a pipeline file cannot declare."""
    if _refusal(proposal, write) is None:
        return proposal
    columns: list[ProposedColumn] = []
    notes = []
    for column in proposal.columns:
        refusal = _refusal(replace(proposal, columns=(*columns, column)), write)
        if refusal is None:
            columns.append(column)
        else:
            notes.append(f'Column "{column.name}" is not declared: {refusal}.')
    return replace(proposal, columns=tuple(columns)).noting(*notes)


def _refusal(proposal: Proposal, write: Write) -> str | None:
    """Why the proposal is no valid pipeline file; None if it is one."""
    try:
        (source,) = parse(write(proposal), "new", environ={}).plan.inputs
        # Lists fit no type, so SQL tests each column, and refuses names that it cannot have.
        ColumnTypes(source).wrong([canonical.write({c.name: [] for c in source.columns})])
    except ConfigError as error:
        return str(error).splitlines()[-1].strip().rstrip(".")
    except (ExpressionError, StepError) as error:
        return str(error)
    return None


_decode = canonical.decoder(dict[str, Any])


def _widened(proposal: Proposal, source: Input, rows: Sequence[bytes]) -> Proposal:
    """Widen the types of columns that do not fit all values."""
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
