"""Alt/Neu times are a lattice, and differentiate and integrate undo each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.update import (
    AltNeu,
    Instant,
    Update,
    accumulate,
    alt,
    differentiate,
    integrate,
    neu,
)
from support.sums import summed

TIMES = st.builds(AltNeu, st.integers(0, 4), neu=st.booleans())
UPDATES = st.lists(
    st.builds(Update, st.sampled_from("abc"), st.integers(0, 4), st.integers(-3, 3)), max_size=12
)


@pytest.mark.parametrize(
    ("lesser", "greater"),
    [
        pytest.param(alt(3), neu(3), id="of one time"),
        pytest.param(neu(2), alt(3), id="of two times"),
        pytest.param(neu(2), 3, id="before a plain time"),
        pytest.param(2, alt(3), id="after a plain time"),
    ],
)
def test_the_order(lesser: AltNeu | int, greater: AltNeu | int) -> None:
    """Alt comes before Neu, and both stand where their time does among others."""
    assert lesser < greater
    assert not greater < lesser
    assert lesser != greater


@pytest.mark.parametrize("time", [alt(3), neu(3)])
def test_both_are_equal_to_their_time(time: AltNeu) -> None:
    """Compared with a plain time, there is no difference between them."""
    assert time == 3
    assert hash(time) == hash(3)
    assert not time < 3
    assert not time > 3


@given(TIMES, TIMES, TIMES)
def test_join_and_meet_are_those_of_a_lattice(a: AltNeu, b: AltNeu, c: AltNeu) -> None:
    """They commute, associate, absorb, and bound."""
    assert a.join(b) == b.join(a)
    assert a.meet(b) == b.meet(a)
    assert a.join(b.join(c)) == a.join(b).join(c)
    assert a.meet(b.meet(c)) == a.meet(b).meet(c)
    assert a.join(a.meet(b)) == a == a.meet(a.join(b))
    assert a.meet(b) <= a <= a.join(b)


@given(UPDATES)
def test_integrate_undoes_differentiate(updates: list[Update[str]]) -> None:
    """Exactly, in content and in order."""
    assert integrate(differentiate(updates)) == updates


@given(UPDATES)
def test_a_differentiated_update_lives_for_an_instant(updates: list[Update[str]]) -> None:
    """Between two times nothing is left, and at Alt of a time just its own updates are there."""
    instants = differentiate(updates)

    for time in range(6):
        own = summed((data, diff) for data, at, diff in updates if at == time)
        assert _there(instants, neu(time)) == {}
        assert _there(instants, alt(time)) == own


@given(UPDATES, UPDATES)
def test_an_as_of_join_is_a_join_between_the_two(
    left: list[Update[str]], right: list[Update[str]]
) -> None:
    """Each update of the left meets the right as it stands at the update's own time."""
    met: list[Instant] = []
    for data, at, diff in differentiate(left):
        for other, time, count in right:
            # A plain time is Alt here: what happens at the update's own time is seen.
            met.append(Instant((data, other), at.join(alt(time)), diff * count))

    assert summed(
        ((pair, time), diff) for pair, time, diff in integrate(_consolidated(met))
    ) == summed(
        (((data, other), time), diff * count)
        for data, time, diff in left
        for other, count in accumulate(right, time).items()
    )


def _there(instants: list[Instant], time: AltNeu) -> dict[str, int]:
    return summed((data, diff) for data, at, diff in instants if at <= time)


def _consolidated(instants: list[Instant]) -> list[Instant]:
    sums: dict[tuple[object, int, bool], int] = {}
    for data, time, diff in instants:
        at = (data, time.time, time.neu)
        sums[at] = sums.get(at, 0) + diff
    return [
        Instant(data, AltNeu(time, neu=is_neu), diff)
        for (data, time, is_neu), diff in sums.items()
        if diff
    ]
