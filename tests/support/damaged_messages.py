"""Messages that are damaged in every way that a test can think of."""

import functools
import json
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

# What no reason of a refusal may hold: it is payload wherever it stands.
MARKER = "hunter2"


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where everything in a message is."""
    if not isinstance(data, dict | list):
        return
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*path, name)
        yield from paths(value, (*path, name))


JUNK: tuple[Any, ...] = (None, True, 7, 1.5, MARKER, [], [MARKER], {}, {MARKER: MARKER})


@st.composite
def damaged(draw: st.DrawFn, messages: Iterable[bytes]) -> bytes:
    """One of `messages`, cut off, with other bytes, or with a field gone or retyped."""
    message = draw(st.sampled_from(sorted(messages)))
    place = st.integers(0, len(message) - 1)
    how = draw(st.sampled_from(["cut", "bytes", "fields"]))
    if how == "cut":
        return message[: draw(place)]
    if how == "bytes":
        flipped = bytearray(message)
        for at in draw(st.lists(place, min_size=1, max_size=3)):
            flipped[at] = draw(st.integers(0, 255))
        return bytes(flipped)
    data = json.loads(message)
    *way, name = draw(st.sampled_from(list(paths(data))))
    holder = functools.reduce(operator.getitem, way, data)
    if draw(st.booleans()):
        del holder[name]
    else:
        holder[name] = draw(st.sampled_from(JUNK))
    return json.dumps(data).encode()
