"""Encode updates as upserts, for a collection with at most one value for each key.

For each time and key with a changed value there is one message: the new value, or a tombstone if
there is none.  The messages come in the order of times, then keys; applied in this order they
make the collection at every time.

This takes all updates of a time and key together, but no state: if a key has one value, its
updates show the old value.  Consolidated, they are +1 of the new value, -1 of the old one, or
both.  Anything else is a violation: the key gets no message at this time, because no value would
be right.  Some violations do not show in the updates of one time, such as a second value that
comes while the first one stays; if a collection may have these, `processor.kernels.single_value`
finds them with state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ikebana.codecs.cdcv2 import Fact
from ikebana.codecs.diff import Headers
from ikebana.codecs.errors import error_record


class OutputMessage(NamedTuple):
    """A Kafka message; the value of a tombstone is None."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Violation(NamedTuple):
    """A key with updates at a time that cannot be written; the reason contains no data."""

    key: bytes | None
    time: int
    reason: str


def to_upserts(updates: Iterable[Fact]) -> tuple[list[OutputMessage], list[Violation]]:
    """Write the updates of closed times as upserts, in order of time and key.

    >>> messages, _ = to_upserts([(b"1", b'"a"', 7, -1), (b"1", b'"b"', 7, 1)])
    >>> messages
    [OutputMessage(key=b'1', value=b'"b"', headers=[('time', b'7')])]
    """
    messages, violations = [], []
    for time, key, diffs in changed(updates):
        if (reason := violation(key, diffs)) is not None:
            violations.append(Violation(key, time, reason))
            continue
        value = next((value for value, diff in diffs.items() if diff > 0), None)
        messages.append(OutputMessage(key, value, time_header(time)))
    return messages, violations


def write(
    updates: Iterable[Fact], _: object, __: object
) -> tuple[list[OutputMessage], list[Violation]]:
    """`to_upserts` with the signature of `formats.OutputCodec`."""
    return to_upserts(updates)


def reader() -> Callable[[bytes | None, bytes | None], list[tuple[bytes, int]]]:
    """Read upserts back: the old value of a key comes from the messages before, in its partition.

    >>> read = reader()
    >>> read(b"1", b'"a"'), read(b"1", b'"b"'), read(b"1", None)
    ([(b'"a"', 1)], [(b'"a"', -1), (b'"b"', 1)], [(b'"b"', -1)])
    """
    values: dict[bytes | None, bytes] = {}

    def read(key: bytes | None, value: bytes | None) -> list[tuple[bytes, int]]:
        before = values.pop(key, None)
        changes = [] if before is None else [(before, -1)]
        if value is not None:
            values[key] = value
            changes.append((value, 1))
        return changes

    return read


def violation(key: bytes | None, diffs: Mapping[bytes, int]) -> str | None:
    """Say why the consolidated diffs of a key's values cannot be an upsert; None if they can."""
    if key is None:
        return "there is no key"
    match sorted(diffs.values()):
        case [1] | [-1] | [-1, 1]:
            return None
        case [-1, -1, *_]:
            return "more than one value goes"
        case [*_, 1, 1]:
            return "more than one value comes"
        case _:
            return "a value comes or goes more than once"


def changed(updates: Iterable[Fact]) -> Iterator[tuple[int, bytes | None, dict[bytes, int]]]:
    """Yield each (time, key) with changed values, in this order, with the diffs by value."""
    groups: dict[tuple[int, bytes | None], dict[bytes, int]] = {}
    for key, value, time, diff in updates:
        at = time, key
        group = groups.get(at)
        if group is None:
            groups[at] = {value: diff}
        else:
            group[value] = group.get(value, 0) + diff
    for at in sorted(groups, key=_by_time_and_key):
        diffs = {value: diff for value, diff in groups[at].items() if diff}
        if diffs:
            yield *at, diffs


def _by_time_and_key(at: tuple[int, bytes | None]) -> tuple[int, bool, bytes]:
    return at[0], at[1] is not None, at[1] or b""


def time_header(time: int) -> Headers:
    """Make the header with a message's logical time, an ASCII integer."""
    return [("time", b"%d" % time)]


def violation_record(output: str, violation: Violation) -> bytes:
    """Make the error record of a violation in an output."""
    reason = f"output {output} at time {violation.time}: {violation.reason}"
    return error_record(reason, None, violation.key, None)
