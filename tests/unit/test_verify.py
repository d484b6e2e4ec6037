"""Cutting a diff topic into closed batches, and the first offence against its promise."""

import msgspec
import pytest

from ikebana.codecs.diff import ProgressRecord, Promise
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import (
    ClosedBatch,
    EarlierUpdates,
    PlacedUpdate,
    TopicPart,
    decode,
    portions,
    split,
    split_history,
    without_repeats,
)
from ikebana.processor.base.verify import Verifier, batch_offence


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


def offence(*parts: TopicPart, complete: bool = True) -> str | None:
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


def test_the_times_that_a_recovery_gave_up_are_named() -> None:
    """They are closed, and what readers find there is what there was before."""
    verifier = Verifier("t")
    for part in (
        FRANK,
        ClosedBatch(msgspec.structs.replace(progress(1, 10, 15, 0), given_up=14), []),
        ClosedBatch(progress(2, 15, 16, 0), []),
    ):
        verifier.feed(part)

    assert (verifier.verdict(), verifier.summary().given_up) == ("ok", (range(10, 14),))


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
def test_an_offence_names_the_batch_or_the_record(later: TopicPart, sentence: str) -> None:
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


def _promised(
    promise: Promise, batch: int, lower: int, upper: int, *updates: PlacedUpdate
) -> ClosedBatch:
    return ClosedBatch(progress(batch, lower, upper, len(updates), promise=promise), [*updates])


def _verified(*parts: TopicPart, complete: bool = True) -> Verifier:
    verifier = Verifier("t", complete=complete)
    for part in parts:
        verifier.feed(part)
    return verifier


PROMISES: tuple[Promise, ...] = ("upserts", "collection", "changes")


@pytest.mark.parametrize("before", PROMISES)
@pytest.mark.parametrize("after", PROMISES)
def test_an_edit_may_change_the_promise_for_all_readers(before: Promise, after: Promise) -> None:
    """Every reader stopped for ever at the first batch after such an edit."""
    changed = _promised(after, 1, 10, 20)

    assert batch_offence("t", progress(0, 0, 10, 3, promise=before), changed) is None


def test_what_was_added_up_counts_under_a_weaker_promise() -> None:
    """The values of keys turn into counts, first those of a collection and then any."""
    more = _promised("collection", 1, 10, 20, at(3, "frank", "oz", 10, 2))
    less = _promised("collection", 2, 20, 30, at(4, "frank", "zappa", 20, -1))
    none = at(5, "frank", "zappa", 30, -1)

    found = _verified(FRANK, more)
    assert found.verdict() == "ok"
    assert (found.summary().keys, found.summary().data, found.summary().total) == (1, 2, 3)
    assert _verified(FRANK, more, less).verdict() == "ok"
    assert offence(FRANK, more, less, _promised("collection", 3, 30, 40, none)) == (
        "t[0]@5: after time 30, in batch 3, a value of this key has the count -1"
    )
    last = _verified(FRANK, more, less, _promised("changes", 3, 30, 40, none))
    assert (last.verdict(), last.summary().data, last.summary().total) == ("ok", 2, 1)
    same = _verified(_promised("changes", 0, 0, 40, at(0, "frank", "oz", 1, 2), none))
    assert last.digest() == same.digest()


# Two values of a key, and a count of -1.
TWO = _promised("collection", 0, 0, 10, at(0, "a", "x", 1, 1), at(1, "a", "y", 1, 1))
NEGATIVE = _promised("changes", 0, 0, 10, at(0, "a", "x", 1, -1))


@pytest.mark.parametrize(
    ("before", "promise", "mends", "breaks", "sentence"),
    [
        pytest.param(
            TWO, "upserts", -1, at(4, "a", "z", 25, 1),
            "t[0]@4: after time 25, in batch 3, this key holds 2 values", id="upserts",
        ),
        pytest.param(
            NEGATIVE, "collection", 1, at(4, "a", "x", 25, -1),
            "t[0]@4: after time 25, in batch 3, a value of this key has the count -1",
            id="a collection",
        ),
    ],
)  # fmt: skip
def test_a_stronger_promise_is_checked_once_the_edit_is_through(
    before: ClosedBatch, promise: Promise, mends: int, breaks: PlacedUpdate, sentence: str
) -> None:
    """Outputs that an edit changes stand, as they were, until they have all of it."""
    stands = _promised(promise, 1, 10, 10)
    edited = _promised(promise, 2, 10, 20, at(2, "a", "x", 10, mends))
    same = _promised("changes", 0, 0, 20, *before.updates, *edited.updates)

    found = _verified(before, stands, edited)
    assert found.verdict() == "ok"
    assert found.digest() == _verified(same).digest()
    assert offence(before, stands, edited, _promised(promise, 3, 20, 30, breaks)) == sentence


@pytest.mark.parametrize(
    ("before", "promise", "sentence"),
    [
        pytest.param(
            TWO, "upserts",
            'batch 2 of "t" promises "upserts", the batches before it "collection", '
            "but at time 20, this key holds 2 values", id="upserts",
        ),
        pytest.param(
            NEGATIVE, "collection",
            'batch 2 of "t" promises "collection", the batches before it "changes", '
            "but at time 20, a value of a key has the count -1", id="a collection",
        ),
    ],
)  # fmt: skip
def test_a_stronger_promise_that_is_not_kept_is_an_offence(
    before: ClosedBatch, promise: Promise, sentence: str
) -> None:
    """What was there before has to keep it too, from the first time that is closed with it."""
    stands = _promised(promise, 1, 10, 10)

    assert offence(before, stands) is None
    assert offence(before, stands, _promised(promise, 2, 10, 20)) == sentence


def test_the_promise_before_is_checked_until_a_stronger_one_holds() -> None:
    """A batch that makes a collection upserts has no negative counts meanwhile."""
    negative = at(2, "a", "x", 10, -2), at(3, "a", "x", 11, 1)

    assert offence(TWO, _promised("upserts", 1, 10, 20, *negative)) == (
        "t[0]@2: after time 10, in batch 1, a value of this key has the count -1"
    )


def test_history_may_be_that_of_a_weaker_promise() -> None:
    """The progress of before the edit was deleted; what the first batch comes to is judged."""
    history = EarlierUpdates([at(0, "a", "x", 3, 1), at(1, "a", "y", 3, 1)])
    stands = _promised("upserts", 7, 10, 10)
    mends = _promised("upserts", 8, 10, 20, at(2, "a", "x", 10, -1))

    assert offence(history, stands, mends, complete=False) is None
    assert offence(history, stands, _promised("upserts", 8, 10, 20), complete=False) == (
        'before batch 7 of "t", at time 10, this key holds 2 values'
    )


def test_history_is_judged_by_what_it_comes_to() -> None:
    """Before the first batch only the sum counts, and it is kept for what follows."""
    history = EarlierUpdates([at(1, "frank", "zappa", 3, 1), at(0, "frank", "mcsherry", 3, -1)])
    earlier = EarlierUpdates([at(2, "frank", "mcsherry", 2, 1)])
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

    assert split_history(progress(4, 10, 20, 1), [within, before]) == (
        EarlierUpdates([before]),
        [within],
    )


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        pytest.param(
            b"x",
            [("time", b"1")],
            "it has a time and no diff, as messages of outputs in upsert, avro, json-schema, "
            "protobuf, debezium-json, debezium-avro have",
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
