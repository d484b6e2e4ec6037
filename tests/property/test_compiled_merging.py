"""Compiled code puts changes in order as the Python beside it does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements import run
from ikebana.arrangements.run import EntryChange

pytest.importorskip(
    "ikebana.compiled._merging",
    reason="the modules of compiled/ are not built here, or are switched off",
    exc_type=ImportError,
)

from ikebana.compiled import _merging as compiled

_changes = st.dictionaries(
    st.binary(max_size=4) | st.sampled_from([b"\x00", b"a", b"a\x00", b"ab", b"\xff\xff"]),
    st.none() | st.binary(max_size=3),
    max_size=40,
)


@given(_changes)
def test_compiled_code_sorts_as_python_does(changes: dict[bytes, bytes | None]) -> None:
    """Bytes are compared without a sign, and a text comes before those that it begins."""
    assert compiled.in_order(changes) == run._in_order(changes)


@given(st.lists(_changes.map(run._in_order), max_size=9))
def test_compiled_code_merges_as_python_does(portions: list[list[EntryChange]]) -> None:
    """Of equal keys the change of the youngest counts, also among several."""
    before = [[*changes] for changes in portions]

    assert compiled.merged(portions) == run._merged(portions)
    assert portions == before


@pytest.mark.parametrize("wrong", [[("key", b"")], [(b"key",)], [b"key"], [None]])
def test_what_is_no_change_is_refused(wrong: Any) -> None:
    """And is not read as one."""
    with pytest.raises(TypeError):
        compiled.merged([wrong, [(b"key", b"")]])


def test_keys_that_are_no_bytes_are_refused() -> None:
    """Their bytes would be those of another object."""
    wrong: Any = {"key": b""}
    with pytest.raises(TypeError):
        compiled.in_order(wrong)
