"""Canonical bytes of objects that all have the same fields, faster than those of any JSON.

The messages of a topic mostly have the same fields in the same order, as the rows of a table do.
A `Shape` is learned from one of them: a msgspec struct with these fields, in this order.  Objects
with other fields are refused, and left to `codecs.canonical`; both give the same bytes.

If several fields have fractions, their texts are kept as they are, and checked together: most
are canonical as they stand, and need be neither read nor written again.
"""

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw

from ikebana.codecs import canonical
from ikebana.codecs.fields import fit_a_struct

try:
    from ikebana.compiled._json_text import Canonical
except ImportError:
    Canonical = None  # type: ignore[assignment,misc]

_MOST_FIELDS = 200
# Checking texts together costs as much as reading this many fractions one by one.
_FEW_FRACTIONS = 3
# At so many objects after the last look, a shape is learned anew; then at twice as many.
_FIRST_LOOK = 16
# Where objects have many shapes, no more of them are learned.
_MOST_LEARNED = 64
_MOST_MISSES = 64
_MOST_BYTES = 4 << 20

_FRACTION = re.compile(rb"-?\d+[.eE]").match
# Other texts may be canonical too; they are read and written again.
_CANONICAL = re.compile(
    rb"(?!.{16})(?!-?0\.000)(?!-0$)-?(?:0|[1-9]\d*)(?:\.\d*[1-9])?|null"
).fullmatch
_KINDS = bytes(
    ord("d") if byte in b"0123456789.-nul" else byte if byte == ord(",") else ord("x")
    for byte in range(256)
)
_OTHER, _LONG = ord("x"), b"d" * 16
_decode = canonical.decoder(Any)
_names = canonical.decoder(dict[str, Raw])


class Shape:
    """The fields of objects; `row` is the type by which msgspec decodes them."""

    def __init__(self, names: Sequence[str], fractions: frozenset[str]) -> None:
        """Make the shape of objects with these fields, some of which have fractions."""
        self.names = tuple(names)
        self.fractions = fractions
        as_text = fractions if len(fractions) >= _FEW_FRACTIONS else frozenset()
        fields = {f"f{at}": name for at, name in enumerate(names)}
        self.row: Any = msgspec.defstruct(
            "Row",
            [(field, Raw if name in as_text else object) for field, name in fields.items()],
            rename=fields,
            forbid_unknown_fields=True,
            gc=False,
        )
        self.fields = {name: field for field, name in fields.items()}
        self._texts = [self.fields[name] for name in names if name in as_text]
        self._read = attrgetter(*self._texts) if self._texts else None

    @staticmethod
    def of(
        message: bytes | Raw,
        before: "Shape | None" = None,
        whole: Sequence[str] = (),
    ) -> "Shape | None":
        """Learn the shape of an object, with what was learned `before`; None if it has none.

        The fields of `whole` are always decoded.  Raises: `canonical.REFUSALS`.
        """
        found: dict[str, Raw] = _names(message)
        if not 0 < len(found) <= _MOST_FIELDS or not fit_a_struct(tuple(found)):
            return None
        fractions = {name for name, text in found.items() if _FRACTION(bytes(text))}
        if before is not None:
            fractions |= before.fractions & found.keys()
        return Shape(tuple(found), frozenset(fractions.difference(whole)))

    def settle(self, row: Any) -> None:
        """Make the fractions of a row canonical.  Raises: `canonical.REFUSALS`."""
        if self._read is None:
            return
        texts = b",".join(self._read(row)) + b","
        kinds = texts.translate(_KINDS)
        # find() is quicker than "in", which first takes bytes for a number, and fails.
        if (
            _OTHER in kinds
            or kinds.find(_LONG) >= 0
            or texts.find(b"0,") >= 0
            or texts.find(b".000") >= 0
        ):
            for field in self._texts:
                text = bytes(getattr(row, field))
                if not _CANONICAL(text):
                    setattr(row, field, _decode(text))

    def is_of(self, other: "Shape") -> bool:
        """Whether another shape has the same fields, and knows of no more fractions."""
        return self.names == other.names and self.fractions >= other.fractions


class Learned:
    """The shape of what is decoded, learned and learned again; `made` is called for each one."""

    def __init__(self, made: Callable[[Shape], None], whole: Sequence[str] = ()) -> None:
        self.shape: Shape | None = None
        self._made = made
        self._whole = whole
        self._look = self._wait = _FIRST_LOOK
        self._learned = self._misses = 0

    @property
    def gives_up(self) -> bool:
        """Whether so many objects in a row had another shape that it is no use."""
        return self._misses > _MOST_MISSES

    def fitted(self, count: int = 1) -> bool:
        """Count objects that had the shape; whether it is time to look at the next one."""
        self._misses = 0
        self._wait -= count
        return self._wait <= 0

    def learn(self, message: bytes | Raw, *, missed: bool) -> bool:
        """Learn from an object; whether the shape is another one now."""
        self._misses += missed
        self._look *= 2
        self._wait = self._look
        if self._learned >= _MOST_LEARNED:
            return False
        known = self.shape
        try:
            found = Shape.of(message, known, self._whole)
        except canonical.REFUSALS:
            return False
        if found is None or (known is not None and known.is_of(found)):
            return False
        self._learned += 1
        self.shape = found
        self._made(found)
        return True


class Objects:
    """`canonical.canonical_many`, for messages that mostly have one shape."""

    def __init__(self) -> None:
        self._decode: Callable[[bytes], list[Any]] | None = None
        self._learned = Learned(self._made)
        self._texts = Canonical().texts if Canonical is not None else None

    def canonical(self, messages: Sequence[bytes]) -> list[bytes]:
        """Apply `canonical.canonical` to messages.

        Raises: DecodeError, for the first that is not JSON.
        """
        if self._texts is not None:
            return self._texts(messages, canonical.canonical)  # type: ignore[return-value]
        if messages and not self._learned.gives_up and (found := self._at_once(messages)):
            return found
        return canonical.canonical_many(messages)

    def _made(self, shape: Shape) -> None:
        self._decode = msgspec.json.Decoder(shape.row, float_hook=canonical.number).decode_lines

    def _at_once(self, messages: Sequence[bytes]) -> list[bytes] | None:
        learned = self._learned
        if learned.shape is None and not learned.learn(messages[0], missed=True):
            return None
        lines = b"\n".join(messages)
        count = len(messages)
        # Each line begins and ends as an object does, so no object can reach over several
        # lines; if there are as many objects as lines, each line is one.
        if (
            len(lines) > _MOST_BYTES
            or lines.count(b"\n") != count - 1
            or lines.count(b"}\n{") != count - 1
            or lines[:1] != b"{"
            or lines[-1:] != b"}"
        ):
            return None
        assert self._decode is not None
        assert learned.shape is not None
        try:
            rows = self._decode(lines)
            if len(rows) != count:
                return None
            settle = learned.shape.settle
            for row in rows:
                settle(row)
        except canonical.REFUSALS:
            learned.learn(messages[-1], missed=True)
            return None
        if learned.fitted(count):
            learned.learn(messages[-1], missed=False)
        return canonical.write_lines(rows)
