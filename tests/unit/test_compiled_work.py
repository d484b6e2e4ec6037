"""Compiled code takes the share of the time of Python that it did: a guard against slow code.

What C does is not counted by `test_work.py`.  Here both forms do the same work in turns, in one
process, and the least times of several rounds are compared: such a ratio hardly depends on the
machine or on what else runs there.
"""

import json
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_compiler import ALL, Fields, Take
from ikebana.codecs.change import Needs
from ikebana.codecs.debezium import Debezium
from ikebana.processor.base.fast_paths import absent
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import half_join
from ikebana.processor.kernels.arrange import Arrangement
from support.avro_messages import message
from support.measured_rows import EVENT, KNOWN, event, row

pytestmark = pytest.mark.skipif(bool(absent()), reason="the compiled code is not there")

ROUNDS = 15
SLACK = 1.6
"""How much more than the stored share is accepted."""
MESSAGES = 100


def canonical_rows() -> tuple[Callable[[], object], Callable[[], object]]:
    from ikebana.compiled._json_text import Canonical

    texts = [json.dumps(row(at)).encode() for at in range(MESSAGES)]
    rewriter = Canonical()
    return (
        lambda: rewriter.texts(texts, canonical.canonical),
        lambda: canonical.canonical_many(texts),
    )


def debezium_events() -> tuple[Callable[[], object], Callable[[], object]]:
    codec = Debezium(Needs(before=True))
    quicker = codec._compiled
    assert quicker is not None
    texts = [json.dumps(event(at)).encode() for at in range(MESSAGES)]
    assert quicker.changes(b"1", texts[0])

    def compiled() -> object:
        return [quicker.changes(b"1", text) for text in texts]

    return compiled, lambda: [codec._changes(codec._opened(text), b"1", None) for text in texts]


def avro_rows() -> tuple[Callable[[], object], Callable[[], object]]:
    messages = [message(2, EVENT, event(at)) for at in range(MESSAGES)]
    compiled = AvroDecoder(KNOWN, takes=[Take(("after",))])
    # The first message of a schema is decoded in Python.
    compiled.decode(messages[0])
    assert compiled.parts(messages[0])
    python = AvroDecoder(KNOWN, needs=Fields({"after": ALL}))
    return (
        lambda: list(map(compiled.parts, messages)),
        lambda: [canonical.write(python.decode(message)["after"]) for message in messages],
    )


def lookups() -> tuple[Callable[[], object], Callable[[], object]]:
    arrangement = Arrangement(MemoryStore(), Interval(0, 9), 0)
    rows = [KeyedUpdate(b"%d" % (at % 500), b"order %d" % at, 0, 1) for at in range(1_000)]
    arrangement.update(rows)
    arrangement.settle(0)
    keys = [b"%d" % (at % 700) for at in range(2_000)]
    asked = half_join.Lookups(keys, keys, [1] * 2_000, [1] * 2_000, sees_equal=False)

    def compiled() -> object:
        return [*half_join.half_join_in_columns(arrangement, asked)]

    def python() -> object:
        with mock.patch.object(half_join, "_Compiled", None):
            return compiled()

    return compiled, python


# The share of the Python's time that was measured.
SHARES: dict[str, tuple[Callable[[], tuple[Callable[[], Any], Callable[[], Any]]], float]] = {
    "canonical rows": (canonical_rows, 0.13),
    "debezium events": (debezium_events, 0.28),
    "avro rows": (avro_rows, 0.05),
    "lookups": (lookups, 0.13),
}


def least(run: Callable[[], object]) -> float:
    begun = time.process_time_ns()
    run()
    return time.process_time_ns() - begun


@pytest.mark.parametrize("name", SHARES)
def test_compiled_code_takes_no_greater_share(name: str) -> None:
    """Of the least times of fifteen rounds in turns."""
    make, share = SHARES[name]
    compiled, python = make()
    compiled(), python()
    times = [(least(compiled), least(python)) for _ in range(ROUNDS)]
    ours, theirs = (min(each) for each in zip(*times, strict=True))

    assert ours / theirs <= share * SLACK, f"{name}: {ours / theirs:.2f} of the time of Python"
