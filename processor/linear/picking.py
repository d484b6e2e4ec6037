"""Steps that only pick columns: their results are assembled from JSON texts, without SQL.

Most stages of a join, and steps that arrange a relation by a column, do no more.  A column's text
stays unchanged if SQL would write the same text: if it is JSON, or of the usual form of its type.
Other texts are left to SQL, which decides what they mean.
"""

# Decision (picking columns needs no SQL): Nearly all stages of joins only pick columns. Texts of
# the usual form of their type stay, since SQL would write the same; a property test compares.

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import ExpressionError, Scope, is_ours
from ikebana.processor.linear.steps import Negate, Sql
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import column
from ikebana.processor.linear.typed_columns import Column

try:
    from ikebana.compiled._picking import are_numbers, objects
except ImportError:
    are_numbers = objects = None  # type: ignore[assignment]

# The most digits that every number of a type may have.
_DIGITS = {"TINYINT": 2, "SMALLINT": 4, "INTEGER": 9, "BIGINT": 18}
_TEXT = "VARCHAR"
_NULL = b"null"
_names_of = msgspec.json.Decoder(dict[str, int]).decode

# Writes the text of each row of columns.
_Written = Callable[[Sequence[Column]], list[bytes]]


class Picking:
    """A step that picks columns, its `fields`, for its key, its value or both."""

    def __init__(
        self,
        kinds: Mapping[str, str],
        key: _Written | None,
        value: _Written | None,
    ) -> None:
        self.fields = tuple(kinds)
        self._kinds = tuple(kinds.values())
        self._key, self._value = key, value

    def pick(self, columns: Sequence[Column]) -> tuple[list[bytes] | None, list[bytes] | None]:
        """The keys and the values; None if nothing is picked for them."""
        texts = [
            [_NULL if text is None else text for text in column] if None in column else column
            for column in columns
        ]
        return self._key and self._key(texts), self._value and self._value(texts)

    def takes(self, columns: Sequence[Column]) -> bool:
        """Whether all texts of the columns may stay unchanged."""
        return all(map(_stays, self._kinds, columns))


def picking(steps: Sequence[Sql | Negate], scope: Scope) -> Picking | None:
    """The picking of steps; None if they do more than pick fields of usual types."""
    if len(steps) != 1 or not isinstance(step := steps[0], Sql):
        return None
    if step != Sql(select=step.select, key=step.key):
        return None
    fields = _Fields(scope)
    try:
        key = None if step.key is None else _written(step.key, fields)
        value = None
        if step.select is not None:
            value = _object({name: fields.at(sql) for name, sql in step.select})
    except (ExpressionError, KeyError):
        return None
    return Picking(fields.kinds, key, value) if fields.kinds else None


class _Fields:
    """The fields that a step picks, with their types, in the order in which it names them."""

    def __init__(self, scope: Scope) -> None:
        self.kinds: dict[str, str] = {}
        self.scope = scope
        # By name in lower case: SQL does not see the case.
        self._numbers: dict[str, int] = {}

    def at(self, sql: str) -> int:
        """The number of the field that SQL picks.

        Raises: KeyError, ExpressionError, if it does more.
        """
        return self.number(_name(self.node(sql)))

    def node(self, sql: str) -> Node:
        """The tree of an expression; that of a quoted name needs no parser."""
        if sql.count('"') == 2 and sql[0] == sql[-1] == '"':
            return column(sql[1:-1])
        tree: Node = parse(sql, self.scope).node
        return tree

    def number(self, name: str) -> int:
        """The number of a field.  Raises: KeyError, ExpressionError, if there is none."""
        if name not in self.kinds:
            kind = self.scope.type_of(name)
            if self.scope.column(name) != name or is_ours(name) or name.lower() in self._numbers:
                raise KeyError(name)
            if kind not in _DIGITS and kind not in (JSON, _TEXT):
                raise KeyError(kind)
            self._numbers[name.lower()] = len(self.kinds)
            self.kinds[name] = kind
        return self._numbers[name.lower()]


def _stays(kind: str, column: Column) -> bool:
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


def _written(sql: str, fields: _Fields) -> _Written:
    """A writer of a column, or of an object of columns.  Raises: KeyError, for anything else."""
    node = fields.node(sql)
    if node["class"] == "FUNCTION" and node["function_name"] == "struct_pack":
        parts = {each["name"]: each["expression"] for each in node["arguments"]}
        if not all(parts) or len(parts) < len(node["arguments"]):
            raise KeyError(sql)
        return _object({name: fields.number(_name(of)) for name, of in parts.items()})
    number = fields.number(_name(node))
    return lambda columns: list(columns[number])  # type: ignore[arg-type]


def _name(node: Any) -> str:
    if node["class"] != "COLUMN_REF" or len(node["column_names"]) > 1:
        raise KeyError(node["class"])
    return str(node["column_names"][0])


def _object(parts: Mapping[str, int]) -> _Written:
    """A writer of canonical objects; `parts` has the positions of columns by field."""
    ordered = _names_of(canonical.encode(dict(parts)))
    texts = [msgspec.json.encode(name).replace(b"%", b"%%") + b":%b" for name in ordered]
    template = b"{" + b",".join(texts) + b"}"
    numbers = list(ordered.values())
    if not numbers:
        # Without columns the number of rows is unknown.
        raise KeyError("no columns")

    if objects is not None:
        names = [msgspec.json.encode(name) + b":" for name in ordered]
        heads = [(b"," if at else b"{") + name for at, name in enumerate(names)] + [b"}"]
        return lambda columns: objects(heads, [[*columns[number]] for number in numbers])

    def rows(columns: Sequence[Column]) -> Iterator[tuple[Any, ...]]:
        return zip(*(columns[number] for number in numbers), strict=True)

    return lambda columns: [template % row for row in rows(columns)]
