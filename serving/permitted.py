"""A service as one reader may see it: the collections and columns that its grant names.

A reader sees a service through `Permitted`, which lacks everything else: a hidden collection has
no name there, and a hidden column no values.  So no read needs checks of its own.

With a grant of some columns, a value that is a JSON object is shown with the permitted fields
only, and any other value as `{}`.  Values that look the same then are merged, with the sum of
their counts.  Keys are shown whole: a reader who may not see keys may not see the collection.

Page tokens reveal no hidden column.  Rows without a key are stored under their values, so a token
among them has their number, counted from the first.
"""

# Decision (what a token may see is a service): A reader is answered from a view in which other
# collections have no name and other columns no values, so no read has to remember to ask. Row
# conditions by token were left out: a view of the pipeline says them better.

import struct
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.watching.guard import Grant
from ikebana.serving import layout
from ikebana.serving.layout import CollectionSize, Meta, Shape, StoredTotals, ValueCounts
from ikebana.serving.reads import no_token, unknown_collection
from ikebana.serving.service import CollectionProgress, Service
from ikebana.serving.view import (
    MOST_PAGE_BYTES,
    ArrangementView,
    Bounds,
    CollectionView,
    RowPage,
    UpdatePage,
    ViewRow,
    totals_of,
)

_MOST_PLACES = 10_000
_KEYLESS = layout.subject(None)
_number = struct.Struct(">Q")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Permitted:
    """A service as one reader may see it; `reads.Views`."""

    def __init__(self, service: Service, grant: Grant) -> None:
        self._service = service
        self._grant = grant
        self._places = Places()

    def names(self) -> list[str]:
        return [name for name in self._service.names() if self._grant.sees(name)]

    def view(self, name: str) -> CollectionView:
        if not self._grant.sees(name):
            raise unknown_collection(name, self.names())
        whole = self._service.view(name)
        columns = self._grant.columns(name)
        return whole if columns is None else ColumnsView(whole, columns, self._places)

    def standing(self, name: str) -> CollectionProgress:
        """Return the progress of a collection that the reader may see."""
        if not self._grant.sees(name):
            raise unknown_collection(name, self.names())
        return self._service.standing(name)

    def pause(self, seconds: float) -> None:
        self._service.pause(seconds)

    def close(self) -> None:
        """Do nothing: the service stays open for other readers."""


class Places:
    """Subjects at which recent pages of rows without keys ended, by (topic, time, number)."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, place: tuple[str, int, int]) -> bytes | None:
        """Return the subject at a place, if it is still remembered."""
        with self._lock:
            return self._subjects.get(place)

    def put(self, place: tuple[str, int, int], subject: bytes) -> None:
        """Remember a subject, and forget the oldest."""
        with self._lock:
            self._subjects[place] = subject
            while len(self._subjects) > _MOST_PLACES:
                self._subjects.popitem(last=False)


@dataclass(frozen=True, slots=True)
class ColumnsView:
    """`CollectionView` of some columns; `places` save a scan for the next page without keys."""

    whole: ArrangementView
    columns: frozenset[str]
    places: Places

    @property
    def meta(self) -> Meta:
        """The metadata without sizes of values, which would reveal hidden columns."""
        whole = self.whole.meta
        shape = Shape(whole.shape.keys, whole.shape.values.only(self.columns))
        totals = StoredTotals(keys=whole.totals.keys)
        columns = {name: kind for name, kind in whole.columns.items() if name in self.columns}
        return msgspec.structs.replace(whole, totals=totals, shape=shape, columns=columns)

    def check(self, time: int) -> None:
        self.whole.check(time)

    def newest(self) -> int:
        return self.whole.newest()

    def get(self, key: bytes, time: int) -> ValueCounts:
        return self._shown(self.whole.get(key, time))

    def get_many(self, keys: Sequence[bytes], time: int) -> list[ValueCounts]:
        return [self._shown(state) for state in self.whole.get_many(keys, time)]

    def rows(self, bounds: Bounds, time: int) -> Iterator[ViewRow]:
        for key, state in self.whole.rows(bounds, time):
            if shown := self._shown(state):
                yield ViewRow(key, shown)

    def page(self, bounds: Bounds, time: int, begin: bytes | None, most: int) -> RowPage:
        rows: list[ViewRow] = []
        size = 0
        number, start = self._place(time, begin)
        for at, (subject, state) in enumerate(self.whole.states(bounds, time, start)):
            is_keyless = layout.key_of(subject) is None
            if is_keyless and start is None and at < number:
                continue
            if len(rows) >= most or size >= MOST_PAGE_BYTES:
                return RowPage(rows, self._then(time, number, subject) if is_keyless else subject)
            number += is_keyless
            if shown := self._shown(state):
                rows.append(ViewRow(layout.key_of(subject), shown))
                size += len(subject) + sum(map(len, shown))
        return RowPage(rows, None)

    def count(self, bounds: Bounds, time: int) -> CollectionSize:
        rows = self.rows(bounds, time)
        return totals_of((len(key or b""), state) for key, state in rows)

    def changes(
        self,
        above: int,
        upto: int,
        begin: tuple[int, int] | None,
        most: int,
        most_bytes: int | None = None,
    ) -> UpdatePage:
        page = self.whole.changes(above, upto, begin, most, most_bytes)
        diffs: Counter[tuple[int, bytes | None, bytes]] = Counter()
        for key, value, time, diff in page.updates:
            diffs[time, key, self._value(value)] += diff
        updates = [
            KeyedUpdate(key, value, time, diff)
            for (time, key, value), diff in diffs.items()
            if diff
        ]
        updates.sort(key=lambda update: (update.time, update.key is not None, update[:2]))
        return UpdatePage(updates, page.then)

    def _value(self, value: bytes) -> bytes:
        return permitted_fields(value, self.columns)

    def _shown(self, state: Mapping[bytes, int]) -> ValueCounts:
        counts: ValueCounts = {}
        for value, count in state.items():
            visible = self._value(value)
            counts[visible] = counts.get(visible, 0) + count
        return {value: count for value, count in counts.items() if count}

    def _place(self, time: int, begin: bytes | None) -> tuple[int, bytes | None]:
        """Return the number of keyless rows before a page, and its first subject if known."""
        if begin is None:
            return 0, None
        if not begin.startswith(_KEYLESS):
            return 0, begin
        try:
            (number,) = _number.unpack(begin[len(_KEYLESS) :])
        except struct.error as error:
            raise no_token() from error
        return number, self.places.get((self.whole.meta.topic, time, number))

    def _then(self, time: int, number: int, subject: bytes) -> bytes:
        self.places.put((self.whole.meta.topic, time, number), subject)
        return _KEYLESS + _number.pack(number)


def permitted_fields(value: bytes, columns: frozenset[str]) -> bytes:
    """Return a value with some fields only; `{}` if it is no JSON object.

    >>> permitted_fields(b'{"id":1,"name":"x","pay":1.50}', frozenset({"id", "pay"}))
    b'{"id":1,"pay":1.50}'
    >>> permitted_fields(b'"a name"', frozenset({"id"}))
    b'{}'
    """
    try:
        fields = _fields(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b"{}"
    visible = (
        b"%b:%b" % (_encode(name), text) for name, text in fields.items() if name in columns
    )
    return b"{" + b",".join(visible) + b"}"
