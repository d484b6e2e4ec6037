"""A machine that gets no processor for a while fails no test of properties."""

import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("profile", ["quick", "unattended", "usual", "thorough"])
def test_a_property_holds_however_long_its_examples_take_to_draw(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis took half a minute without a processor for a strategy at fault."""
    seen: list[int] = []

    @settings(settings.get_profile(profile), max_examples=20, database=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        seen.append(data.draw(st.integers()))

    seconds = count(step=10)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    holds()

    assert len(seen) >= 10
