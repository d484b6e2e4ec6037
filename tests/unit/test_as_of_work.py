"""What a change of either side of an ASOF JOIN reads, counted in entries of the store."""

from collections.abc import Iterator, Sequence

import pytest

from ikebana.arrangements.store import MemoryStore
from ikebana.processor.engine.evaluate import Evaluation
from support.sql_oracle import plan_of

TABLES = {"t": {"k": "BIGINT", "at_": "BIGINT"}, "p": {"k": "BIGINT", "since": "BIGINT"}}
QUERY = "SELECT t.at_, p.since FROM t ASOF JOIN p ON t.k = p.k AND t.at_ >= p.since"


class Read:
    """The entries that stores have given since the count was set to zero."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        get_many, scan = MemoryStore.get_many, MemoryStore.scan

        def counted_get(store: MemoryStore, keys: Sequence[bytes]) -> list[bytes | None]:
            found = get_many(store, keys)
            self.entries += sum(each is not None for each in found)
            return found

        def counted_scan(
            store: MemoryStore, prefix: bytes, start: bytes = b""
        ) -> Iterator[tuple[bytes, bytes]]:
            for each in scan(store, prefix, start):
                self.entries += 1
                yield each

        patch.setattr(MemoryStore, "get_many", counted_get)
        patch.setattr(MemoryStore, "scan", counted_scan)


def read_by_a_price(monkeypatch: pytest.MonkeyPatch, prices: int) -> int:
    """The entries that are read where a price comes between so many others, of other keys."""
    with monkeypatch.context() as patch:
        read = Read(patch)
        run = Evaluation(plan_of(TABLES, {"view": QUERY}))
        rights = [(at, {"k": 1, "since": 10 * at}, 0) for at in range(prices)]
        lefts = [("a", {"k": 1, "at_": 5}, 0), ("b", {"k": 1, "at_": 10 * prices}, 0)]
        run.advance({"p_changes": rights, "t_changes": lefts}, 1)
        read.entries = 0
        middle = 10 * (prices // 2) + 5
        found = run.advance({"p_changes": [(-1, {"k": 1, "since": middle}, 1)]}, 2)
        assert found["view"] == []
        return read.entries


def test_a_price_reads_some_of_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its span and that of the one before it are found in the order, not by a list of all."""
    assert read_by_a_price(monkeypatch, 400) < 300
