"""Steps that only pick columns: their results are assembled from JSON texts, without SQL.

Most stages of a join, and steps that arrange a relation by a column, do no more; rows without a
match have nulls beside them.  A column's text
stays unchanged if SQL would write the same text: if it is JSON, or of the usual form of its type.
Other texts are left to SQL, which decides what they mean.
"""

# Decision (picking columns needs no SQL): Nearly all stages of joins only pick columns. Texts of
# the usual form of their type stay, since SQL would write the same; a property test compares.

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.sql_type import NULL, Decimal, Scalar, type_of
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.json_text import BLOB, JSON, compares_as_data, has_json_form
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError, Scope, is_ours
from ikebana.processor.linear.steps import AnyStep, Negate, Sql
from ikebana.processor.linear.syntax import Node, tree
from ikebana.processor.linear.typed_json import JsonColumn

try:
    from ikebana.compiled._picking import are_numbers, objects
except ImportError:
    are_numbers = objects = None  # type: ignore[assignment]

# The most digits that every number of a type may have.
_DIGITS = {"TINYINT": 2, "SMALLINT": 4, "INTEGER": 9, "BIGINT": 18}
_TEXT = "VARCHAR"
_NULL = b"null"
_TYPED_NULL = re.compile(r"CAST\(NULL AS (?P<type>.+)\)")
_names_of = msgspec.json.Decoder(dict[str, int]).decode

# Writes the text of each row of columns.
_Written = Callable[[Sequence[JsonColumn]], list[bytes]]


class Picked(NamedTuple):
    """What a step picks: numbers of its `fields`; the number of a column that is null is None."""

    kinds: Mapping[str, str]
    """The types of its fields, in the order in which it names them."""
    key: int | Mapping[str, int] | None
    """The field, or those of an object, that are the new key, if there is one."""
    value: Mapping[str, int | None] | None
    """The fields of the new value by name, if there is one."""
    result: Scope
    """The scope of the results."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the value that it reads."""
        return tuple(self.kinds)

    @property
    def reads_key(self) -> bool:
        """Whether it reads the key, which it carries on beside a new value."""
        return self.key is None

    @property
    def reads_value(self) -> bool:
        """Whether it reads the value as a whole."""
        return False

    @property
    def makes_value(self) -> bool:
        """Whether it makes new values."""
        return self.value is not None

    @property
    def makes_key(self) -> bool:
        """Whether it makes new keys."""
        return self.key is not None


class Picking:
    """A step that picks columns, its `fields`, for its key, its value or both."""

    def __init__(self, picked: Picked) -> None:
        self.fields = picked.fields
        self._kinds = tuple(picked.kinds.values())
        self._key = None if picked.key is None else _written(picked.key)
        self._value = None if picked.value is None else _object(picked.value)

    def pick(self, columns: Sequence[JsonColumn]) -> tuple[list[bytes] | None, list[bytes] | None]:
        """The keys and the values; None if nothing is picked for them."""
        texts = [
            [_NULL if text is None else text for text in column] if None in column else column
            for column in columns
        ]
        return self._key and self._key(texts), self._value and self._value(texts)

    def takes(self, columns: Sequence[JsonColumn]) -> bool:
        """Whether all texts of the columns may stay unchanged."""
        return all(map(_stays, self._kinds, columns))


def picking_of(picked: Picked | None) -> Picking | None:
    """The picking of a step; None if it does more, or picks a field of an unusual type."""
    if picked is None or not all(
        kind in _DIGITS or kind in (JSON, _TEXT) for kind in picked.kinds.values()
    ):
        return None
    return Picking(picked)


def picked_fields(steps: Sequence[Sql | Negate], scope: Scope) -> Picked | None:
    """What steps pick; None if they do more than pick fields, or may have a problem."""
    if len(steps) != 1 or not isinstance(step := steps[0], Sql):
        return None
    if _does_more(step):
        return None
    fields = _Fields(scope)
    try:
        key = None if step.key is None else fields.key(step.key)
        value = None if step.select is None else fields.value(step.select)
    except (ExpressionError, KeyError):
        return None
    of_key = {KEY: scope.types[KEY] if key is None else JSON}
    if value is None:
        result = replace(scope, types={**scope.types, **of_key})
        return Picked(fields.kinds, key, None, result)
    types = {name: kind for name, (kind, _) in value.items()}
    numbers = {name: number for name, (_, number) in value.items()}
    return Picked(fields.kinds, key, numbers, Scope({**types, **of_key, VALUE: JSON}))


def composed(first: AnyStep, then: AnyStep) -> Sql | None:
    """The step that picks from the columns of another one, if neither can fail on a row.

    >>> composed(Sql(select=(("a", "x"), ("b", "y"))), Sql(select=(("c", "b"),)))
    Sql(where=(), select=(('c', 'y'),), key=None, flat_map=None, diff=None, ...)
    """
    if not (isinstance(first, Sql) and isinstance(then, Sql) and first.select and then.select):
        return None
    if _does_more(first) or _does_more(then) or then.key is not None:
        return None
    picks = [sql for _, sql in first.select] + ([] if first.key is None else [first.key])
    if not all(null_type(sql) or _column_of(sql) for sql in picks):
        return None
    columns = dict(first.select)
    select = []
    for name, sql in then.select:
        if null_type(sql) is None:
            if (of := _column_of(sql)) not in columns:
                return None
            sql = columns[of]
        select.append((name, sql))
    return Sql(select=tuple(select), key=first.key)


def _does_more(step: Sql) -> bool:
    """Whether a step does more than make a key and a value."""
    parts = (step.where, step.flat_map, step.diff, step.valid_from, step.valid_until)
    return parts != ((), None, None, None, None)


@functools.lru_cache(maxsize=4096)
def _column_of(sql: str) -> str | None:
    """The column that an expression names, if it does no more."""
    try:
        return _name(tree(sql))
    except (ExpressionError, KeyError):
        return None


class _Fields:
    """The fields that a step picks, with their types, in the order in which it names them."""

    def __init__(self, scope: Scope) -> None:
        self.kinds: dict[str, str] = {}
        self._scope = scope
        # By name in lower case: SQL does not see the case.
        self._numbers: dict[str, int] = {}

    def key(self, sql: str) -> int | Mapping[str, int]:
        """The number of the field that is a key, or of those of an object, by name.

        Raises: KeyError, ExpressionError, if it is more than that.
        """
        node = self._node(sql)
        if node["class"] != "FUNCTION" or node["function_name"] != "struct_pack":
            return self._comparable(_name(node))
        parts = {each["name"]: each["expression"] for each in node["arguments"]}
        if not parts or not all(parts) or len(parts) < len(node["arguments"]):
            raise KeyError(sql)
        return {name: self._comparable(_name(of)) for name, of in parts.items()}

    def _comparable(self, name: str) -> int:
        number = self._number(name)
        if not compares_as_data(self.kinds[name]):
            raise KeyError(name)
        return number

    def value(self, select: Sequence[tuple[str, str]]) -> dict[str, tuple[str, int | None]]:
        """The types of the columns of a value, and the numbers of their fields; a null has none.

        Raises: as `key`.
        """
        columns = {}
        for name, sql in select:
            if is_ours(name) or not name or "\0" in name:
                raise KeyError(name)
            columns[name] = self._column(sql)
        if len({name.lower() for name in columns}) < len(select):
            raise KeyError(*columns)
        if all(number is None for _, number in columns.values()):
            # Without fields the number of rows is unknown.
            raise KeyError(*columns)
        return columns

    def _column(self, sql: str) -> tuple[str, int | None]:
        if (kind := null_type(sql)) is not None:
            return kind, None
        name = _name(self._node(sql))
        number = self._number(name)
        return self.kinds[name], number

    def _node(self, sql: str) -> Node:
        node = tree(sql)
        if node["class"] == "COLUMN_REF" and _name(node) in self._scope.types:
            return node
        # Such as a name that no column can have.
        checked: Node = parse(sql, self._scope).node
        return checked

    def _number(self, name: str) -> int:
        """The number of a field.  Raises: KeyError, ExpressionError, if there is none."""
        if name not in self.kinds:
            kind = self._scope.type_of(name)
            if self._scope.column(name) != name or is_ours(name) or name.lower() in self._numbers:
                raise KeyError(name)
            if not _is_plain(kind):
                raise KeyError(kind)
            self._numbers[name.lower()] = len(self.kinds)
            self.kinds[name] = kind
        return self._numbers[name.lower()]


@functools.cache
def null_type(sql: str) -> str | None:
    """The type of a null, if an expression is one with a type, as outer joins write it."""
    match = _TYPED_NULL.fullmatch(sql)
    return match["type"] if match is not None and _is_plain(match["type"]) else None


@functools.cache
def _is_plain(kind: str) -> bool:
    """Whether a type has a JSON form and no types within, by the name that SQL gives it."""
    of = type_of(kind)
    is_plain = isinstance(of, Decimal) or (
        isinstance(of, Scalar) and kind not in (BLOB, str(NULL))
    )
    return is_plain and has_json_form(of) and str(of) == kind


def _stays(kind: str, column: JsonColumn) -> bool:
    if kind == JSON:
        return True
    if are_numbers is not None and kind != _TEXT:
        return are_numbers([*column], _DIGITS[kind])
    texts = [text for text in column if text is not None] if None in column else column
    if not texts:
        return True
    joined = b",".join(texts)  # type: ignore[arg-type]
    if kind == _TEXT:
        # SQL has its own view of the character 0.
        return all(text[:1] == b'"' for text in texts if text) and b"\\u" not in joined
    longest = max(map(len, texts))  # type: ignore[arg-type]
    if longest <= _DIGITS[kind] and not joined.translate(None, b"0123456789,"):
        return True
    # There are signs, or texts that are no numbers.
    return _numbers(_DIGITS[kind]).fullmatch(joined) is not None


def _numbers(digits: int) -> re.Pattern[bytes]:
    # Compiled once by `re`.
    return re.compile(b"-?[0-9]{1,%d}(?:,-?[0-9]{1,%d})*" % (digits, digits))


def _written(key: int | Mapping[str, int]) -> _Written:
    """A writer of a column, or of an object of columns."""
    if not isinstance(key, int):
        return _object(key)
    return lambda columns: list(columns[key])  # type: ignore[arg-type]


def _name(node: Any) -> str:
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) > 1:
        raise KeyError(node["class"])
    return str(node["column_names"][0])


def _object(parts: Mapping[str, int | None]) -> _Written:
    """A writer of canonical objects; `parts` has the positions of columns by field."""
    heads, numbers = [b"{"], []
    for name in _names_of(canonical.encode(dict.fromkeys(parts, 0))):
        heads[-1] += msgspec.json.encode(name) + b":"
        if (number := parts[name]) is None:
            heads[-1] += _NULL
        else:
            numbers.append(number)
            heads.append(b"")
        heads[-1] += b","
    heads[-1] = heads[-1].removesuffix(b",") + b"}"

    if objects is not None:
        return lambda columns: objects(heads, [[*columns[number]] for number in numbers])

    template = b"%b".join(head.replace(b"%", b"%%") for head in heads)

    def rows(columns: Sequence[JsonColumn]) -> Iterator[tuple[Any, ...]]:
        return zip(*(columns[number] for number in numbers), strict=True)

    return lambda columns: [template % row for row in rows(columns)]
