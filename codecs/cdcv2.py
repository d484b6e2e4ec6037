"""CDCv2 as JSON: facts about a collection, in any order, and repeated or not.

One topic has two kinds of messages:

* `{"updates":[[data,time,diff],...]}`: the multiplicity of `data` changes by `diff` at
  `time`.  `data` is `{"key":...,"value":...}`, without `key` if there is none.
* `{"progress":{"lower":[l],"upper":[u],"counts":[[time,n],...]}}`: each time t with
  l <= t < u has exactly n distinct updates, or none if no count is given.  An empty `upper`
  says that the statement holds for all later times.

Each message is a fact that stays true, so repetition and disorder are harmless
(`processor.base.diff_reader` reads them).  For this, each (data, time) must have one diff:
all updates of a time are consolidated together before they are written.  Counts of several
writers add up as long as no two of them write the same data.

The protocol is that of differential dataflow, `src/capture.rs` in
TimelyDataflow/differential-dataflow (`Message`, `Progress`).  It has no JSON form; the
names here are those of Materialize's Avro form,
https://materialize.com/docs/connect/materialize-cdc/, which `cdcv2_avro` writes.  Times are
totally ordered here, so that a frontier is one time or none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from ikebana.arrangements.update import sums
from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError

# (key, value, time, diff), key and value canonical bytes.
Fact: TypeAlias = tuple[bytes | None, bytes, int, int]
# Greater than every time: the upper of a collection that is closed for ever.
END = 1 << 63
LARGEST_STATEMENT = 512 << 10
"""The usual bound of a message in bytes, well below what brokers take by default."""


class UpdateFacts(NamedTuple):
    """Some updates; no diff is 0."""

    updates: list[Fact]


class Progress(NamedTuple):
    """The numbers of distinct updates by time t with `lower` <= t < `upper`; others have none."""

    lower: int
    upper: int
    counts: Mapping[int, int]


Cdcv2Message: TypeAlias = UpdateFacts | Progress


def consolidate(updates: Iterable[Fact]) -> list[Fact]:
    """Sum the diffs of equal (key, value, time) and drop those that cancel.

    >>> consolidate([(b"1", b"{}", 3, 1), (b"1", b"[]", 3, 1), (b"1", b"{}", 3, -1)])
    [(b'1', b'[]', 3, 1)]
    """
    return [(*data, diff) for data, diff in sums(updates).items() if diff]


def encode_updates(updates: Iterable[Fact], max_bytes: int = LARGEST_STATEMENT) -> Iterator[bytes]:
    """Write updates, consolidated, as messages of at most `max_bytes` each.

    All updates of a time must come in one call.  A single update that is longer than
    `max_bytes` gets a separate message.

    >>> [*encode_updates([(b'{"id":1}', b'{"n":2}', 7, 1)], 1_000)]
    [b'{"updates":[[{"key":{"id":1},"value":{"n":2}},7,1]]}']
    """
    parts = [
        b'[{"value":%b},%d,%d]' % (value, time, diff)
        if key is None
        else b'[{"key":%b,"value":%b},%d,%d]' % (key, value, time, diff)
        for key, value, time, diff in consolidate(updates)
    ]
    for group in packed(parts, max_bytes - len(b'{"updates":[]}'), len, gap=1):
        yield b'{"updates":[%b]}' % b",".join(group)


def encode_progress(
    lower: int,
    upper: int,
    counts: Mapping[int, int],
    max_bytes: int = LARGEST_STATEMENT,
) -> Iterator[bytes]:
    """Write the counts of the times in [lower, upper) as messages of at most `max_bytes`.

    If there are several messages, they are statements about consecutive intervals.

    >>> [*encode_progress(3, 9, {7: 2}, 1_000)]
    [b'{"progress":{"lower":[3],"upper":[9],"counts":[[7,2]]}}']
    """
    room = max_bytes - len(b'{"progress":{"lower":[],"upper":[],"counts":[]}}') - 2 * _LONGEST
    for one in statements(lower, upper, counts, room, _count_length):
        listed = b",".join([b"[%d,%d]" % count for count in one.counts.items()])
        end = b"" if one.upper == END else b"%d" % one.upper
        yield b'{"progress":{"lower":[%d],"upper":[%b],"counts":[%b]}}' % (one.lower, end, listed)


# The most digits of a time, with a sign.
_LONGEST = 20


def _count_length(count: tuple[int, int]) -> int:
    return len(b"[%d,%d]," % count)


def packed(
    parts: Iterable[Any], room: int, length: Callable[[Any], int], *, gap: int = 0
) -> Iterator[list[Any]]:
    """Group parts, at least one in a group, so that the parts and the gaps fit into `room`."""
    group: list[Any] = []
    size = -gap
    for part in parts:
        more = length(part) + gap
        if group and size + more > room:
            yield group
            group, size = [], -gap
        group.append(part)
        size += more
    if group:
        yield group


def statements(
    lower: int,
    upper: int,
    count_at: Mapping[int, int],
    room: int,
    length: Callable[[tuple[int, int]], int],
) -> Iterator[Progress]:
    """Cut [lower, upper) into statements with counts that fit into `room`."""
    # A batch may have a count for each record, too many for one message.
    ordered = sorted((time, count) for time, count in count_at.items() if count)
    assert lower <= upper <= END, f"progress from {lower} to {upper}"
    assert not ordered or lower <= ordered[0][0] <= ordered[-1][0] < upper, "a count lies outside"
    groups = list(packed(ordered, room, length)) or [[]]
    starts = [lower, *(group[0][0] for group in groups[1:]), upper]
    for start, end, group in zip(starts, starts[1:], groups, strict=False):
        yield Progress(start, end, dict(group))


_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Data(msgspec.Struct, forbid_unknown_fields=True):
    value: Any
    key: Any = UNSET


class _Progress(msgspec.Struct, forbid_unknown_fields=True):
    lower: list[_Long]
    upper: list[_Long]
    counts: list[tuple[_Long, _Long]]


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    updates: list[tuple[_Data, _Long, _Long]] | UnsetType = UNSET
    progress: _Progress | UnsetType = UNSET


_decode = canonical.decoder(_Message)


def decode(message: bytes | None) -> Cdcv2Message:
    """Decode a message; key and value become canonical bytes.

    Raises:
        DecodeError: it is neither updates nor progress, or contradicts itself.
    """
    try:
        data = _decode(message or b"")
    except canonical.REFUSALS as error:
        # The error would quote the field's name, which is payload.
        if str(error).startswith("Object contains unknown field"):
            raise DecodeError("CDCv2", "an object has a field that it must not have") from None
        raise canonical.decode_error("CDCv2", error) from None
    match data:
        case _Message(updates=list(updates), progress=UnsetType()):
            return checked_updates(
                (
                    None if data.key is UNSET else canonical.write(data.key),
                    canonical.write(data.value),
                    time,
                    diff,
                )
                for data, time, diff in updates
            )
        case _Message(updates=UnsetType(), progress=_Progress() as progress):
            return checked_progress(progress.lower, progress.upper, progress.counts)
    raise DecodeError("CDCv2", 'it needs one of "updates" and "progress"')


def checked_updates(updates: Iterable[Fact]) -> UpdateFacts:
    """Check updates that were decoded.

    Raises:
        DecodeError: a diff is 0.
    """
    facts = list(updates)
    for fact in facts:
        if not fact[3]:
            raise DecodeError("CDCv2", "a diff is 0")
    return UpdateFacts(facts)


def checked_progress(
    lower: Sequence[int], upper: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> Progress:
    """Check a progress statement that was decoded.

    Raises:
        DecodeError: its bounds are no interval of totally ordered times, or a count is for a
            time outside the interval.
    """
    if len(lower) != 1 or len(upper) > 1:
        raise DecodeError("CDCv2", '"lower" needs one time, "upper" at most one')
    start, end = lower[0], upper[0] if upper else END
    if start > end:
        raise DecodeError("CDCv2", '"lower" is beyond "upper"')
    by_time = dict(pairs)
    if len(by_time) < len(pairs):
        raise DecodeError("CDCv2", '"counts" has two counts of one time')
    for time, count in pairs:
        if not start <= time < end:
            raise DecodeError("CDCv2", '"counts" has a time that is not in the interval')
        if count < 0:
            raise DecodeError("CDCv2", '"counts" has a negative count')
    return Progress(start, end, {time: count for time, count in pairs if count})
