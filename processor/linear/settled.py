"""Normalise the fields of plan values: collections become tuples, one text becomes a tuple.

Python takes a text for a sequence of its letters.  So arguments with names, conditions or other
texts have the type `TextOrTexts`, and are read by `texts`; fields of plan values are converted by
their types.
"""

import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Union

import msgspec

from ikebana.errors import ConfigError

TextOrTexts = str | Sequence[str]
"""One text, such as a column's name, or several."""
_MANY = tuple[str, ...]


def texts(several: TextOrTexts | Iterable[str], what: str) -> tuple[str, ...]:
    """Texts as a tuple; a single text becomes a tuple of one, never its letters.

    `what` names the argument in errors.

    >>> texts("id", "key"), texts(["a", "b"], "key")
    (('id',), ('a', 'b'))

    Raises: ConfigError, for anything else.
    """
    if isinstance(several, str):
        return (several,)
    if isinstance(several, Mapping) or not isinstance(several, Iterable):
        _refuse(what, several)
    read = tuple(several)
    for each in read:
        if not isinstance(each, str):
            _refuse(what, each)
    return read


def keys(several: TextOrTexts | Sequence[TextOrTexts], what: str) -> tuple[tuple[str, ...], ...]:
    """Lists of columns: a column, a list of them, or a list of such lists.

    >>> keys("id", "unique"), keys(["a", "b"], "unique"), keys([["a", "b"], "c"], "unique")
    ((('id',),), (('a', 'b'),), (('a', 'b'), ('c',)))

    Raises: ConfigError, for anything else.
    """
    if isinstance(several, str) or all(isinstance(each, str) for each in several):
        read = texts(several, what)  # type: ignore[arg-type]
        return (read,) if read else ()
    return tuple(texts(each, what) for each in several)


def pairs(fields: Mapping[str, str], what: str) -> tuple[tuple[str, str], ...]:
    """Fields with their SQL, as pairs.  Raises: ConfigError, for anything else."""
    if not isinstance(fields, Mapping):
        raise ConfigError(
            f"{what} must be a mapping of fields to SQL, not {fields!r}",
            hint='Give one such as {"amount": "quantity * price"}.',
        )
    return tuple(fields.items())


def pair_of_texts(pair: tuple[str, str], what: str) -> tuple[str, str]:
    """Two texts, such as the aliases of a join.  Raises: ConfigError, for anything else."""
    if isinstance(pair, str) or len(texts(pair, what)) != 2:
        raise ConfigError(
            f"{what} must be two texts, not {pair!r}", hint='Give both, such as ("l", "r").'
        )
    first, second = pair
    return first, second


def _refuse(what: str, value: object) -> NoReturn:
    raise ConfigError(
        f"{what} must be a text, or a list of texts, not {value!r}",
        hint='Give a text such as "id", or a list of such texts.',
    )


def as_tuples(value: Any) -> Any:
    """A list as a tuple, a mapping as a tuple of pairs, and their items likewise.

    >>> as_tuples({"a": ["x", "y"]})
    (('a', ('x', 'y')),)
    """
    if isinstance(value, Mapping):
        return tuple((name, as_tuples(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(as_tuples, value))
    return value


def settle(part: msgspec.Struct) -> None:
    """Make the collections in the fields of a part tuples, by the fields' types.

    Raises: ConfigError, for a text in place of a collection of other things than texts.
    """
    what = f'{type(part).__name__} "{getattr(part, "name", "")}"'.removesuffix(' ""')
    settle_fields(what, part, msgspec.structs.force_setattr)


def settle_fields(what: str, part: object, put: Callable[[Any, str, Any], None]) -> None:
    """Like `settle`, for any object; `put` sets a field."""
    of: Any = type(part)
    for name, kind in _fields(of).items():
        value = getattr(part, name)
        if isinstance(value, str | list | tuple | Mapping):
            settled = _settled(f"{what}: {name}", value, kind)
            if settled is not value:
                put(part, name, settled)


@functools.cache
def _fields(part: Any) -> dict[str, Any]:
    """The fields of a class with collections, with their types."""
    hints = typing.get_type_hints(part)
    classes = {name for name, kind in hints.items() if typing.get_origin(kind) is typing.ClassVar}
    kinds = {name: _collection(hints[name]) for name in hints.keys() - classes}
    return {name: kinds[name] for name in hints if kinds.get(name) is not None}


@functools.cache
def _collection(kind: Any) -> Any:
    """The part of a type that is a tuple, if it has one."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        return next(filter(None, map(_collection, typing.get_args(kind))), None)
    return kind if typing.get_origin(kind) is tuple else None


@functools.cache
def _has_only_texts(kind: Any) -> bool:
    """Whether a type is that of texts, or of tuples of them in any depth."""
    if typing.get_origin(kind) is not tuple:
        return kind is str or kind is ...
    return all(map(_has_only_texts, typing.get_args(kind)))


def _settled(what: str, value: Any, kind: Any) -> Any:
    if kind is str and isinstance(value, str):
        # Nearly all: the types below are compared slowly.
        return value
    if kind == _MANY:
        return texts(value, what) if isinstance(value, str | list | tuple) else value
    if kind == tuple[_MANY, ...]:
        return keys(value, what) if isinstance(value, str | list | tuple) else value
    kind = _collection(kind)
    if kind is None:
        return as_tuples(value)
    if _has_only_texts(kind):
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, kind)
    if isinstance(value, str):
        raise ConfigError(f"{what} must be a tuple, not the text {value!r}", hint="Give a tuple.")
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if not isinstance(value, list | tuple):
        return value
    first, *others = typing.get_args(kind)
    if others == [...]:
        return tuple(_settled(what, each, first) for each in value)
    if len(value) != len(others) + 1:
        raise ConfigError(
            f"{what} has {value!r} where {len(others) + 1} values belong",
            hint="Give a tuple of them.",
        )
    return tuple(_settled(what, *each) for each in zip(value, (first, *others), strict=True))
