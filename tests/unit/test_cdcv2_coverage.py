"""How far a CDCv2 input is complete, on literal statements."""

from collections.abc import Sequence

import msgspec
import pytest

from ikebana.codecs.cdcv2 import END, Progress
from ikebana.processor.base.diff_reader import ContradictionError
from ikebana.processor.topics.input_times import (
    Coverage,
    add_statements,
    merge_statements,
    packed,
    unpacked,
)


def test_what_lies_before_the_frontier_is_forgotten() -> None:
    """What is logged is as small as what is open; repeated statements change nothing."""
    statement = Progress(0, 9, {3: 1, 5: 1})
    one = add_statements(Coverage(), [statement], {3: 1})

    assert one == Coverage(5, [[5, 9, 5, 1]], [])
    assert add_statements(one, [statement], {}) == one
    assert add_statements(one, [statement], {5: 1}) == Coverage(9)
    assert add_statements(Coverage(9), [statement], {}) == Coverage(9)


def test_a_statement_beyond_a_gap_waits() -> None:
    """Nothing is known of the times in between."""
    one = add_statements(Coverage(), [Progress(5, 9, {})], {})

    assert one == Coverage(0, [[5, 9]], [])
    assert add_statements(one, [Progress(0, 5, {})], {}) == Coverage(9)


def test_facts_may_be_found_before_anything_is_said_of_their_time() -> None:
    """They are told once, and count when progress comes."""
    one = add_statements(Coverage(), [], {7: 2, 3: 1})

    assert one == Coverage(0, [], [3, 1, 4, 2])
    assert add_statements(one, [Progress(0, 8, {3: 1, 7: 2})], {}) == Coverage(8)


def test_a_collection_that_is_closed_for_good_is_complete_to_the_end_of_time() -> None:
    """The greatest number there is can be logged and read again."""
    one = add_statements(Coverage(), [Progress(0, END, {END - 1: 1})], {})
    read = msgspec.json.decode(msgspec.json.encode(one), type=Coverage)

    assert read == one == Coverage(END - 1, [[END - 1, END, END - 1, 1]], [])
    assert add_statements(read, [], {END - 1: 1}) == Coverage(END)


def test_an_input_may_begin_later() -> None:
    """What is said of earlier times plays no part."""
    begun = add_statements(Coverage(4), [Progress(-3, 6, {-2: 1, 3: 1})], {})

    assert begun == Coverage(6)


@pytest.mark.parametrize(
    ("statements", "found", "message"),
    [
        pytest.param(
            [Progress(0, 4, {3: 1}), Progress(2, 6, {3: 2})],
            {},
            "cannot read CDCv2 updates of time 3: progress gives two counts of them",
            id="two counts",
        ),
        pytest.param(
            [Progress(0, 9, {}), Progress(2, 4, {3: 1})],
            {},
            "cannot read CDCv2 updates of time 3: progress gives two counts of them",
            id="none and a count",
        ),
        pytest.param(
            [Progress(0, 9, {3: 1}), Progress(2, 4, {})],
            {},
            "cannot read CDCv2 updates of time 3: progress gives two counts of them",
            id="a count and none",
        ),
        pytest.param(
            [Progress(7, 9, {8: 1}), Progress(8, 20, {})],
            {},
            "cannot read CDCv2 updates of time 8: progress gives two counts of them",
            id="two counts beyond a gap",
        ),
        pytest.param(
            [Progress(0, 9, {3: 1})],
            {3: 2},
            "cannot read CDCv2 updates of time 3: there are 2, and progress counts 1",
            id="more than are counted",
        ),
        pytest.param(
            [Progress(5, 9, {8: 1})],
            {7: 1},
            "cannot read CDCv2 updates of time 7: there are 1, and progress counts 0",
            id="one where none is, beyond a gap",
        ),
    ],
)
def test_what_cannot_all_be_true_is_an_error(
    statements: Sequence[Progress], found: dict[int, int], message: str
) -> None:
    """In whatever order it comes, in one batch or in several."""
    for order in (statements, statements[::-1]):
        with pytest.raises(ContradictionError) as caught:
            add_statements(Coverage(), order, found)
        assert caught.value.message == message

        with pytest.raises(ContradictionError) as caught:
            _one_by_one(order, found)
        assert caught.value.message == message


def _one_by_one(statements: Sequence[Progress], found: dict[int, int]) -> None:
    # What is missing at time 0 keeps all that follows open.
    coverage = add_statements(Coverage(), [Progress(0, 1, {0: 1})], found)
    for statement in statements:
        later = statement._replace(lower=max(statement.lower, 1))
        coverage = add_statements(coverage, [later], {})


def test_one_more_than_was_counted_is_an_error_when_its_time_is_complete() -> None:
    """The time was complete before: somebody has found what cannot be."""
    with pytest.raises(ContradictionError) as caught:
        add_statements(Coverage(9), [], {3: 1})

    assert caught.value.message == (
        "cannot read CDCv2 updates of time 3: there are more of them than progress counts"
    )


def test_statements_that_touch_or_overlap_become_one() -> None:
    """What is said twice is said once, and what says nothing is left out."""
    statements = [
        Progress(8, 9, {}),
        Progress(2, 5, {4: 7}),
        Progress(0, 3, {1: 1}),
        Progress(2, 5, {4: 7}),
        Progress(7, 7, {}),
        Progress(5, 6, {}),
        Progress(1, 3, {1: 1}),
    ]

    assert merge_statements(statements) == [Progress(0, 6, {1: 1, 4: 7}), Progress(8, 9, {})]


def test_packed_statements_are_small_and_come_back() -> None:
    """A count takes a step and a number: a commit record holds many of them."""
    start = 1_700_000_000_000
    statement = Progress(start, END, {start + step: 2 for step in range(1_000)})
    written = msgspec.json.encode(packed([statement, Progress(0, 1, {})]))

    assert list(unpacked(msgspec.json.decode(written))) == [statement, Progress(0, 1, {})]
    assert len(written) < 5 * 1_000
