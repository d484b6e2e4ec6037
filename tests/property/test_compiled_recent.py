"""Compiled code remembers entries as the Python beside it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements import rocks
from ikebana.arrangements.run import EntryChange
from ikebana.arrangements.store import EntryDict

pytest.importorskip(
    "ikebana.compiled._recent",
    reason="the modules of compiled/ are not built here, or are switched off",
    exc_type=ImportError,
)

from ikebana.compiled import _recent as compiled

KEYS = [b"", b"\x00", b"\xff", *(b"key %d" % number for number in range(12))]
_keys = st.lists(st.sampled_from(KEYS), max_size=8)
_some = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=5), max_size=8)


@given(
    young=_some,
    old=_some,
    keys=_keys,
    entries=st.lists(st.sampled_from(KEYS)).map(
        lambda keys: [(key, b"new" if at % 3 else None) for at, key in enumerate(keys)]
    ),
    prefix=st.sampled_from([b"", b"k", b"key 1", b"\xff", b"key 123"]),
)
def test_compiled_code_remembers_as_python_does(
    young: EntryDict, old: EntryDict, keys: list[bytes], entries: list[EntryChange], prefix: bytes
) -> None:
    """The same values, places, sizes and entries."""
    ours, theirs = dict(young), dict(young)

    found, missing, moved = rocks._recalled(ours, old, keys)
    assert compiled.recalled(theirs, old, keys) == (found, missing, moved)
    values = [None if at % 2 else b"read" for at in missing]
    also = [*found]
    assert rocks._filled(ours, keys, found, missing, values) == compiled.filled(
        theirs, keys, also, missing, values
    )
    assert found == also
    assert rocks._put(ours, entries) == compiled.put(theirs, entries)
    assert [*ours.items()] == [*theirs.items()]
    assert rocks._size_of(entries) == compiled.size_of(entries)
    assert rocks._any_begins(old, prefix) == compiled.any_begins(old, prefix)
