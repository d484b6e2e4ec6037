"""The sink in memory passes what every sink has to pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ikebana.delivering.sink import ID, Sink, TargetTable
from support.memory_sink import MemorySink, MemoryTarget
from support.sink_conformance import SinkConformance


class _Target:
    def __init__(self) -> None:
        self._target = MemoryTarget()

    def sink(self) -> Sink:
        return MemorySink(self._target)

    def rows(self, table: TargetTable) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if name != ID}
            for row in self._target.tables.get(table.name, [])
        ]

    def as_of(self, table: TargetTable) -> tuple[int | None, list[dict[str, Any]]]:
        return self._target.uppers.get(table.name), self.rows(table)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._target.away = True
        yield
        self._target.away = False


class TestMemorySink(SinkConformance):
    @pytest.fixture
    def target(self) -> _Target:
        return _Target()
