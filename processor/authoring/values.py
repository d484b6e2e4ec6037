"""Sections of the pipeline file: their model, and validators for their values.

Validators accept short forms and word the refusals.  Numbers may also be written as text, since a
substituted variable is text.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, get_args

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from ikebana.codecs.formats import FORMATS
from ikebana.processor.base.texts import hint
from ikebana.processor.linear.steps import project
from ikebana.processor.planning import starts

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_LONGEST_S = 9e15
_SECONDS = {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Section(BaseModel):
    """A section of the file; a key without a value counts as absent."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """The keys of this section, with their types."""
        return {f.alias or name: f.annotation for name, f in cls.model_fields.items()}


def shown(value: object) -> str:
    """A value as errors show it; lists and mappings are only named as such."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return str(value)


def refuse(
    value: object, expected: str, choices: tuple[str, ...] = (), remedy: str = ""
) -> NoReturn:
    """Refuse a value with an error that pydantic reports."""
    behind = f"; {remedy}" if remedy else hint(value, choices)
    problem = f"must be {expected}; is {shown(value)}{behind}"
    # Given as context, since a template would read the braces that it may hold.
    raise PydanticCustomError("ikebana", "{problem}", {"problem": problem})


def as_text(value: object) -> object:
    """Text; numbers are refused, and must be quoted."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict | None):
        refuse(value, "text")
    refuse(value, "text (put it in quotes)")


def as_whole(value: object) -> object:
    """A whole number, also as text."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]+", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    refuse(value, "a whole number")


def as_seconds(value: object) -> object:
    """A number of seconds, or a duration."""
    if isinstance(value, str) and (duration := _DURATION.fullmatch(value)):
        return float(duration[1]) * _SECONDS[duration[2]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    refuse(value, "a number of seconds, or a duration such as 500ms, 10s, 5m or 7d")


def as_finite_seconds(value: object) -> object:
    """A finite number of seconds."""
    seconds = as_seconds(value)
    # Longer than any time of 64 bits in milliseconds.
    if not isinstance(seconds, float) or not abs(seconds) < _LONGEST_S:
        refuse(value, "a time that ends")
    return seconds


def as_seconds_or_never(value: object) -> object:
    """Seconds, or None for never."""
    return None if value == "never" else as_finite_seconds(value)


def as_scalar(value: object) -> object:
    """A scalar (text, number or flag) as text."""
    if isinstance(value, list | dict | None):
        refuse(value, "text, a number, true or false")
    return value if isinstance(value, str) else shown(value)


def as_start(value: object) -> object:
    """Where reading begins: a word, a time, or offsets by partition."""
    try:
        return starts.text_of(value)
    except ValueError:
        refuse(value, starts.FORMS, starts.WORDS)


def _texts_of(form: str) -> Callable[[object], object]:
    """A validator of a text, or a list of one text or more; `form` is what it must be."""

    def as_tuple(value: object) -> object:
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            refuse(value, form)
        return tuple(texts)

    return as_tuple


as_topics = _texts_of("a topic or a list of one topic or more")
as_names = _texts_of("a name or a list of one name or more")
as_texts = _texts_of("a SQL expression or a list of them")


def as_formats(value: object) -> object:
    """A format for key and value, or one for each."""
    if isinstance(value, str) and value in FORMATS:
        return {"key": FORMATS[value].usual_key, "value": value}
    if isinstance(value, dict):
        return value
    refuse(value, f"one of {', '.join(FORMATS)}, or {{key: …, value: …}}", tuple(FORMATS))


def as_selected(value: object) -> object:
    """A list of columns, or a mapping of names to SQL expressions."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return project(*value).select
    if isinstance(value, dict):
        return tuple((name, as_expression(text)) for name, text in value.items())
    remedy = "leave select out to keep the value as it is" if value == "*" else ""
    refuse(value, "a list of columns, or a mapping of names to SQL expressions", remedy=remedy)


def as_expression(value: object) -> object:
    """A SQL expression."""
    # An expression such as 1 or true is written without quotes by everyone.
    if isinstance(value, list | dict | None):
        refuse(value, "a SQL expression", remedy=_as_one_expression(value))
    return value if isinstance(value, str) else shown(value)


def as_by(value: object) -> object:
    """A SQL expression, or a list of columns, which are the fields of an object."""
    if not isinstance(value, list):
        return as_expression(value)
    if not value or not all(isinstance(name, str) and name.isidentifier() for name in value):
        refuse(value, "a SQL expression or a list of one column or more")
    if len({*value}) < len(value):
        refuse(value, "a SQL expression or a list that names each column once")
    if len(value) == 1:
        return f'"{value[0]}"'
    fields = ", ".join(f"'{name}': \"{name}\"" for name in value)
    return f"{{{fields}}}"


def _as_one_expression(value: object) -> str:
    """How to write several columns as one expression, if these are columns."""
    pairs: list[tuple[object, object]] = []
    if isinstance(value, list) and all(str(name).isidentifier() for name in value):
        pairs = [(name, name) for name in value]
    elif isinstance(value, dict):
        pairs = list(value.items())
    if not pairs or not all(isinstance(part, str) for pair in pairs for part in pair):
        return ""
    fields = ", ".join(f"'{name}': {column}" for name, column in pairs)
    return f'several columns are one object, in quotes: "{{{fields}}}"'


def _expressions_of(form: str) -> Callable[[object], object]:
    """A validator of a mapping of names to SQL, as pairs; `form` is what it must be."""

    def as_pairs(value: object) -> object:
        if isinstance(value, dict):
            return tuple((name, as_expression(text)) for name, text in value.items())
        refuse(value, form)

    return as_pairs


as_aggregates = _expressions_of("a mapping of names to aggregates, such as {orders: count(*)}")
as_functions = _expressions_of("a mapping of names to window functions, such as {place: rank()}")
as_typed = _expressions_of("a mapping of columns to SQL types, such as {a: BIGINT}")


def as_flat_mapped(value: object) -> object:
    """One column and its list in SQL, or a Python function."""
    if isinstance(value, str) and ":" in value and "(" not in value:
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((name, text),) = value.items()
        return name, as_expression(text)
    refuse(value, "{column: list}, such as {item: unnest(items)}, or module:function")


def as_columns(value: object) -> object:
    """A mapping of columns to SQL types."""
    if not isinstance(value, dict):
        refuse(value, "a mapping of columns to SQL types")
    return value


def as_column(value: object) -> object:
    """A SQL type, or a mapping that has one."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        refuse(value, "a SQL type, such as BIGINT")
    return {"type": value}


def as_schema(value: object) -> object:
    """An Avro schema, as text or in YAML."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    refuse(value, "an Avro schema")


def as_flag(value: object) -> object:
    """True or false, also as text."""
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    refuse(value, "true or false")


def choice(literal: Any) -> BeforeValidator:
    """A validator of one of the words of a Literal."""
    choices: tuple[str, ...] = get_args(literal)

    def chosen(value: object) -> object:
        if value in choices:
            return value
        listed = " or ".join(f'"{choice}"' for choice in choices)
        refuse(value, listed if len(choices) == 2 else f"one of {', '.join(choices)}", choices)

    # The schema of the file reads them.
    chosen.choices = choices  # type: ignore[attr-defined]
    return BeforeValidator(chosen)


Text = Annotated[str, BeforeValidator(as_text)]
WholeNumber = Annotated[int, BeforeValidator(as_whole)]
Seconds = Annotated[float, BeforeValidator(as_seconds)]
Scalars = dict[str, Annotated[str, BeforeValidator(as_scalar)]]
ExpressionText = Annotated[str, BeforeValidator(as_expression)]


def as_joined(value: object) -> object:
    """A mapping of names in a join to operators."""
    if not isinstance(value, dict):
        refuse(value, "a mapping of names to operators, such as {o: orders, p: prices}")
    for name, of in value.items():
        if not isinstance(of, str):
            refuse(of, f'the name of an operator for "{name}"')
    return tuple(value.items())


def as_conditions(value: object) -> object:
    """A mapping of names in a join to conditions."""
    if not isinstance(value, dict):
        refuse(value, "a mapping of names to conditions, such as {p: o.product = p.key}")
    return tuple((name, as_texts(texts)) for name, texts in value.items())


def as_orders(value: object) -> object:
    """For inputs of a join: the order in which a change looks up the other inputs."""
    if not isinstance(value, dict):
        refuse(value, "a mapping of names to lists of the others, such as {o: [c, l]}")
    for name, order in value.items():
        if not isinstance(order, list):
            refuse(order, f'a list of the other inputs for "{name}"')
    return tuple((name, tuple(map(str, order))) for name, order in value.items())


def as_unique(value: object) -> object:
    """A column, or a list of columns or of lists of them."""
    keys = value if isinstance(value, list) else [value]
    if keys and all(isinstance(key, str) for key in keys):
        return (tuple(keys),)
    if keys and all(isinstance(key, list) and key for key in keys):
        return tuple(tuple(map(str, key)) for key in keys if isinstance(key, list))
    refuse(value, "a list of columns, or a list of such lists")
