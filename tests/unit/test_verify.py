"""Cutting a diff topic into closed batches, and the first offence against its promise."""

import pytest

from ikebana.codecs.progress import ProgressRecord, Promise
from ikebana.errors import SourceError
from ikebana.processor.verifying.diff_reader import (
    ClosedBatch,
    History,
    Part,
    PlacedUpdate,
    decode,
    portions,
    split,
    split_history,
    without_repeats,
)
from ikebana.processor.verifying.verify import Verifier


def progress(
    batch: int,
    lower: int,
    upper: int,
    count: int,
    ends: dict[int, int] | None = None,
    *,
    promise: Promise = "upserts",
    checkpoint: str = "c",
) -> ProgressRecord:
    """A progress record of topic t."""
    return ProgressRecord(
        checkpoint,
        "p",
        "t",
        batch,
        lower,
        upper,
        count,
        {0: 100} if ends is None else ends,
        promise,
    )


def at(offset: int, key: str, value: str, time: int, diff: int) -> PlacedUpdate:
    """An update at t[0]."""
    return PlacedUpdate(key.encode(), value.encode(), time, diff, 0, offset)


def offence(*parts: Part, complete: bool = True) -> str | None:
    """The sentence of the first offence."""
    verifier = Verifier("t", complete=complete)
    for part in parts:
        verifier.feed(part)
    return verifier.offence.sentence if verifier.offence else None


FRANK = ClosedBatch(
    progress(0, 0, 10, 3),
    [at(0, "frank", "mcsherry", 1, 1), at(1, "frank", "zappa", 5, 1),
     at(2, "frank", "mcsherry", 5, -1)],
)  # fmt: skip


def test_upserts_that_replace_a_value_at_one_time_are_ok() -> None:
    """All diffs of a time count at once: +new before -old is no second value."""
    verifier = Verifier("t")
    verifier.feed(FRANK)
    summary = verifier.summary()

    assert verifier.verdict() == "ok"
    assert (summary.batches, summary.updates, summary.keys, summary.frontier) == (1, 3, 1, 10)


def test_no_progress_is_not_verifiable() -> None:
    """R18. Without a batch nothing is verified, which is neither ok nor an offence."""
    assert Verifier("t").verdict() == "not verifiable"


@pytest.mark.parametrize(
    ("later", "sentence"),
    [
        pytest.param(
            ClosedBatch(progress(2, 10, 20, 0), []),
            'batch 2 of "t" follows batch 0',
            id="a batch is missing",
        ),
        pytest.param(
            ClosedBatch(progress(1, 11, 20, 0), []),
            'batch 1 of "t" begins at time 11, the batch before it ends at 10',
            id="times are missing",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 9, 0), []),
            'batch 1 of "t" ends at time 9, before it begins at 10',
            id="upper goes back",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 0, checkpoint="d"), []),
            'batch 1 of "t" is of checkpoint d, batch 0 before it of c',
            id="another checkpoint",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 0, promise="changes"), []),
            'batch 1 of "t" promises "changes", the batch before it "upserts"',
            id="another promise",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 0, {0: 99}), []),
            'batch 1 of "t" ends at offset 99 of partition 0, the batch before it at 100',
            id="ends go back",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 1), [at(120, "david", "bowie", 20, 1)]),
            "t[0]@120: time 20 is outside batch 1, which holds 10 <= time < 20",
            id="upper is exclusive",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 2), [at(120, "david", "bowie", 10, 1)]),
            'batch 1 of "t" has 1 update, its progress counts 2',
            id="a record is missing",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 1), [at(120, "frank", "oz", 12, 1)]),
            "t[0]@120: after time 12, in batch 1, this key holds 2 values",
            id="two values",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 1), [at(120, "frank", "zappa", 12, 1)]),
            "t[0]@120: after time 12, in batch 1, a value of this key has the count 2",
            id="a value twice",
        ),
        pytest.param(
            ClosedBatch(progress(1, 10, 20, 1), [at(120, "david", "bowie", 12, -1)]),
            "t[0]@120: after time 12, in batch 1, a value of this key has the count -1",
            id="retraction of nothing",
        ),
        pytest.param(
            ClosedBatch(
                progress(1, 10, 20, 2),
                [at(120, "frank", "oz", 12, 1), at(121, "frank", "zappa", 13, -1)],
            ),
            "t[0]@120: after time 12, in batch 1, this key holds 2 values",
            id="the retraction comes a time late",
        ),
    ],
)
def test_an_offence_names_the_batch_or_the_record(later: Part, sentence: str) -> None:
    """The first offence is a sentence with the record's place, or the batch's number."""
    assert offence(FRANK, later) == sentence


def test_only_the_first_offence_is_told() -> None:
    """What comes after an offence is not judged."""
    assert offence(FRANK, ClosedBatch(progress(3, 0, 1, 7), []), FRANK) == (
        'batch 3 of "t" follows batch 0'
    )


@pytest.mark.parametrize(
    ("promise", "diff", "expected"),
    [
        pytest.param("collection", 2, None, id="two of a datum in a collection"),
        pytest.param(
            "collection",
            -1,
            "t[0]@0: after time 1, in batch 0, a value of this key has the count -1",
            id="a negative count in a collection",
        ),
        pytest.param("changes", -1, None, id="a negative count among changes"),
    ],
)
def test_sums_are_judged_by_the_promise(promise: Promise, diff: int, expected: str | None) -> None:
    """R18. Counts above one are a collection's right, negative ones only that of changes."""
    batch = ClosedBatch(
        progress(0, 0, 10, 2, promise=promise),
        [at(0, "a", "x", 1, diff), at(1, "a", "y", 1, 1)],
    )

    assert offence(batch) == expected


def test_history_is_judged_by_what_it_comes_to() -> None:
    """Before the first batch only the sum counts, and it is kept for what follows."""
    history = History([at(1, "frank", "zappa", 3, 1), at(0, "frank", "mcsherry", 3, -1)])
    earlier = History([at(2, "frank", "mcsherry", 2, 1)])
    retracts = ClosedBatch(progress(7, 10, 20, 1), [at(9, "frank", "zappa", 12, -1)])

    assert offence(history, earlier, retracts, complete=False) is None
    assert offence(history, retracts, complete=False) == (
        'before batch 7 of "t", at time 10, a value of this key has the count -1'
    )


def test_no_key_is_not_the_empty_key() -> None:
    """A record without a key and one with an empty key are different data."""
    batch = ClosedBatch(
        progress(0, 0, 10, 2),
        [PlacedUpdate(None, b"x", 1, 1, 0, 0), PlacedUpdate(b"", b"x", 1, 1, 0, 1)],
    )
    verifier = Verifier("t")

    assert verifier.feed(batch) is None
    assert verifier.summary().keys == 2


def test_of_a_repeated_batch_the_first_record_counts() -> None:
    """A repetition may end elsewhere; one with another count is left to be found."""
    first, again = progress(0, 0, 10, 1, {0: 5}), progress(0, 0, 10, 1, {0: 7})
    other = progress(0, 0, 10, 2)

    assert list(without_repeats([first, again, other], None)) == [first, other]
    assert list(without_repeats([again], first)) == []


def test_a_batch_is_what_lies_between_two_ends() -> None:
    """Records belong to batches by offset, and a partition added later begins at 0."""
    records = [progress(0, 0, 10, 1, {0: 3}), progress(1, 10, 20, 2, {0: 5, 1: 2})]
    old, new = at(1, "a", "x", 1, 1), at(3, "a", "x", 10, -1)
    added = PlacedUpdate(b"b", b"y", 10, 1, 1, 0)
    (portion,) = portions(records, {}, 100)

    assert portion.starts.get(1, 0) == 0
    assert split(portion, [[added], [old], [new]]) == [
        ClosedBatch(records[0], [old]),
        ClosedBatch(records[1], [new, added]),
    ]


def test_portions_are_bounded_but_hold_a_batch() -> None:
    """Batches are grouped up to a number of offsets; a larger one is a portion alone."""
    records = [progress(b, b, b + 1, 0, {0: end}) for b, end in enumerate([2, 4, 100, 101])]

    assert [[r.batch for r in p.batches] for p in portions(records, {}, 4)] == [[0, 1], [2], [3]]
    assert [p.starts for p in portions(records, {}, 4)] == [{}, {0: 4}, {0: 100}]
    assert [len(p.batches) for p in portions(records, {}, 400, first_alone=True)] == [1, 3]


def test_history_is_told_by_its_times() -> None:
    """Where progress begins in the middle, what is before its lower is history."""
    before, within = at(0, "a", "x", 9, 1), at(1, "b", "y", 10, 1)

    assert split_history(progress(4, 10, 20, 1), [within, before]) == (History([before]), [within])


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        pytest.param(
            b"x",
            [("time", b"1")],
            "it has a time and no diff, as messages of outputs in upsert and debezium-json have",
            id="no diff",
        ),
        pytest.param(b"x", [("diff", b"1")], 'header "time" is missing', id="no time"),
        pytest.param(b"x", [("time", b"1"), ("diff", b"0")], 'header "diff" is 0', id="diff 0"),
        pytest.param(None, [("time", b"1"), ("diff", b"1")], "the value is null", id="no value"),
    ],
)
def test_what_is_no_update_is_named_by_its_place(
    value: bytes | None, headers: list[tuple[str, bytes | str | None]], reason: str
) -> None:
    """A record that is no update is an error with topic, partition and offset."""
    with pytest.raises(SourceError) as caught:
        decode("t", (3, 17), b"k", value, headers)

    assert caught.value.message == f"cannot read t[3]@17 as an update: {reason}"
