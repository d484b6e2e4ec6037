"""The order of a type's values in SQL, in the form that `typed_order` encodes."""

from ikebana.codecs.sql_type import Array, Enum, List, Map, SqlType, Struct, type_of
from ikebana.processor.base.typed_order import Order
from ikebana.processor.linear.json_text import BLOB, INSTANTS


class NoOrderError(Exception):
    """The values of a type cannot be ordered as SQL orders them."""


def order_of(kind: str) -> Order:
    """The order of a type's values; "" if SQL orders them as JSON.

    >>> order_of("BIGINT"), order_of("DATE[]")
    ('', ('list', 'instant'))

    Raises: NoOrderError.
    """
    return _order(type_of(kind))


def _order(kind: SqlType) -> Order:
    name = str(kind)
    if name in ("DOUBLE", "FLOAT"):
        return "double"
    if name in INSTANTS:
        return "instant"
    if name == "TIME WITH TIME ZONE":
        return "time"
    if name == BLOB:
        return "bytes"
    if name == "INTERVAL":
        return "interval"
    match kind:
        case Enum(values):
            return ("enum", values)
        case List(of) | Array(of):
            return ("list", _order(of))
        case Struct(fields):
            return ("row", tuple((part, _order(of)) for part, of in fields))
        case Map():
            raise NoOrderError(
                f"is of type {name}: SQL orders maps by the order in which their entries stand, "
                "which JSON does not keep; take map_entries(…) of it, or a value of it"
            )
    return ""
