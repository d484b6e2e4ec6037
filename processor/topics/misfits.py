"""Say which part of a value does not fit a nested type, by its path."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from ikebana.codecs.sql_type import TAKE_ALL, Array, List, Map, SqlType, Struct, quoted
from ikebana.processor.linear.typed_json import fit
from ikebana.processor.topics.usual_forms import Usual


def misfits(texts: Sequence[bytes], type_: SqlType) -> list[tuple[str, SqlType]]:
    """Say where values in canonical JSON do not fit a type; none of them fits.

    The result has a path and the type there for each value.  The path is empty if the value
    itself does not fit.  Keys of maps are data, so the path does not show them.
    """
    result = [("", type_)] * len(texts)
    parts: dict[SqlType, list[tuple[int, str, bytes]]] = {}
    for row, text in enumerate(texts):
        for path, part, of in _parts_of(text, type_):
            parts.setdefault(of, []).append((row, path, part))
    for of, places in parts.items():
        unfit = _unfit([part for _, _, part in places], of)
        wrong = [place for place in places if place[2] in unfit]
        # The first one of each row.
        first = {row: (path, part) for row, path, part in reversed(wrong)}
        inner = misfits([part for _, part in first.values()], of) if first else []
        for (row, (path, _)), (rest, kind) in zip(first.items(), inner, strict=True):
            if not result[row][0]:
                result[row] = path + rest, kind
    return result


def _unfit(texts: Iterable[bytes], type_: SqlType) -> set[bytes]:
    """The texts that do not fit a type; SQL is asked only about unusual ones."""
    kind = str(type_)
    if kind in TAKE_ALL:
        return set()
    usual = _usual_of(kind)
    asked = [text for text in dict.fromkeys(texts) if not usual.takes([b'{"v":%b}' % text])]
    return {text for text, fits in zip(asked, fit(asked, type_), strict=True) if not fits}


@lru_cache(maxsize=256)
def _usual_of(kind: str) -> Usual:
    return Usual({"v": kind})


def _parts_of(text: bytes, type_: SqlType) -> Iterator[tuple[str, bytes, SqlType]]:
    """The parts of a value, as far as it has the form of its type: paths, texts, and types."""
    try:
        match type_:
            case Struct(fields):
                members = _object(text)
                for name, of in fields:
                    if name in members:
                        yield f".{quoted(name)}", bytes(members[name]), of
            case List(element) | Array(element):
                for number, each in enumerate(_list(text), 1):
                    yield f"[{number}]", bytes(each), element
            case Map(_, value):
                for each in _object(text).values():
                    yield "[…]", bytes(each), value
    except msgspec.MsgspecError:
        return


_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
