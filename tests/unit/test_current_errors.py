"""The errors that stand: what updates of an error topic come to."""

from ikebana.codecs.errors import error_record
from ikebana.processor.base.diff_reader import EarlierUpdates, PlacedUpdate
from ikebana.processor.cli.errors import current_errors


def update(record: bytes, time: int, diff: int) -> PlacedUpdate:
    """An update of the error topic."""
    return PlacedUpdate(None, record, time, diff, 0, time)


def test_what_was_taken_back_does_not_stand() -> None:
    """What came again stands since then; the newest is last."""
    one = error_record("one", ("t", 1, 7), b"k", b"v")
    other = error_record("other", None, None, None)
    found = current_errors(
        [
            EarlierUpdates([update(one, 1, 1), update(other, 2, 2)]),
            EarlierUpdates([update(one, 3, -1), update(other, 4, -1), update(one, 5, 1)]),
        ]
    )

    assert [(e.record["reason"], e.number, e.time) for e in found] == [
        ("other", 1, 2),
        ("one", 1, 5),
    ]
    assert (found[1].place, found[1].key, found[1].value) == (("t", 1, 7), b"k", b"v")
    assert (found[0].place, found[0].key, found[0].value) == (None, None, None)
