"""The options that inputs may have, and the encodings of their columns."""

from collections.abc import Iterator

from ikebana.codecs.change import Column, Declared, Wanted
from ikebana.codecs.column_encodings import full_name, usual_name
from ikebana.errors import ConfigError
from ikebana.processor.ground.spelling import instead
from ikebana.processor.planning.operators.kind import Problem
from ikebana.processor.planning.plan import Input


def option_problems(source: Input) -> Iterator[Problem]:
    """Options that the format of an input has not, and values that they cannot have."""
    path, known = f"inputs.{source.name}.options", source.traits.options
    are_all_known = True
    for name, value in source.options:
        problem = ""
        if name not in known:
            problem = f"is no option of {source.value_format}{instead(name, known)}"
        elif known[name].choices and value not in known[name].choices:
            problem = f'is "{value}"; set it to one of: {", ".join(known[name].choices)}'
        elif not value and not known[name].may_be_empty:
            problem = "must not be empty"
        if problem:
            are_all_known = False
            yield f"{path}.{name}", problem
    if source.options and are_all_known and not source.traits.in_registry:
        yield from _problems_together(source)


def _problems_together(source: Input) -> Iterator[Problem]:
    """Options that exclude each other, of which the codec knows."""
    declared = Declared({column.name: column.type for column in source.columns})
    wanted = Wanted(key=source.key, options=dict(source.options), declared=declared)
    assert source.traits.codec is not None, f"{source.value_format} has options without a codec"
    try:
        source.traits.codec(wanted, source.key_format, None)
    except ConfigError as error:
        yield f"inputs.{source.name}.options", "; ".join(str(error).splitlines())


def encodings_of(source: Input) -> dict[str, str]:
    """The encodings of columns by their full names: the declared ones, and those of the format."""
    found = {}
    for column in source.columns:
        if name := encoding_of(source, column):
            found[column.name] = name
    return found


def encoding_of(source: Input, column: Column) -> str | None:
    """The encoding of a column by its full name; None if values are as they are.

    Raises: TypeTextError, if it has no type.
    """
    if column.encoding is not None:
        return full_name(column.type, column.encoding)
    return usual_name(column.type, source.traits.usual_encodings)
