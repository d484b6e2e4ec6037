"""The contents of blocks: changes in columns where that is shorter, and as msgpack elsewhere."""

import random

import msgspec
import pytest

from ikebana.arrangements import run
from ikebana.arrangements.run import EntryChange
from ikebana.processor.base.fast_paths import absent

needs_compiled = pytest.mark.skipif(bool(absent()), reason="the compiled code is not there")


def rows(count: int) -> list[EntryChange]:
    draw = random.Random(5).randrange
    return [
        (b'k{"id":%d}' % at, b'v{"id":%d,"price":%d}' % (at, draw(10**6))) for at in range(count)
    ]


def digests(count: int) -> list[EntryChange]:
    draw = random.Random(5).randbytes
    return [(draw(16), draw(40)) for _ in range(count)]


def test_rows_take_half_as_much_in_columns() -> None:
    changes = rows(5_000)
    plain = run.encode(changes)

    assert run.decode(plain) == changes
    if not absent():
        as_they_are = run.compressed(msgspec.msgpack.encode(changes))
        assert len(run.compressed(plain)) < 0.5 * len(as_they_are)


@pytest.mark.parametrize("changes", [digests(2_000), rows(7), []], ids=["digests", "few", "none"])
def test_what_is_not_shorter_in_columns_stays_as_it_is(changes: list[EntryChange]) -> None:
    assert run.encode(changes) == msgspec.msgpack.encode(changes)
    assert run.decode(run.encode(changes)) == changes


@needs_compiled
def test_a_sample_of_all_places_decides() -> None:
    """Of large values only their beginnings."""
    mixed = [*rows(3_000), *digests(1_000)]
    large = [(key, value and value * 1_000) for key, value in rows(600)]

    for changes in (mixed, large):
        assert run.encode(changes)[:1] == b"\x01"
        assert run.decode(run.encode(changes)) == changes


@pytest.fixture
def without_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there was no C compiler."""
    monkeypatch.setattr(run, "_divided", None)
    monkeypatch.setattr(run, "_put_together", None)


@needs_compiled
def test_columns_are_read_without_compiled_code(request: pytest.FixtureRequest) -> None:
    changes = [*rows(300), (b"gone", None)]
    in_columns = run.encode(changes)
    request.getfixturevalue("without_compiled")

    assert in_columns[:1] == b"\x01"
    assert run.decode(in_columns) == changes
    assert run.encode(changes) == msgspec.msgpack.encode(changes)


NO_ENTRIES = b"\x01\x97\xff\xc4\x00\x90\xc4\x00\x01\xc4\x00\x90"


@pytest.mark.parametrize("plain", [b"", b"\x01", b"\x01\x97", b"\x93", NO_ENTRIES + b"x"])
def test_what_is_no_block_is_refused(plain: bytes, request: pytest.FixtureRequest) -> None:
    """Less than no entries are none."""
    assert run.decode(NO_ENTRIES) == []
    with pytest.raises(ValueError, match=r"."):
        run.decode(plain)
    request.getfixturevalue("without_compiled")
    assert run.decode(NO_ENTRIES) == []
    with pytest.raises(ValueError, match=r"."):
        run.decode(plain)
