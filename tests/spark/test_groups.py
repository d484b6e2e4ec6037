"""The groups of shards: one for each state partition, by Spark's own hash."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.java_gateway import launch_gateway

from ikebana.processor.spark.connection import groups

pytestmark = [pytest.mark.full, pytest.mark.spark]

_WORD = 0xFFFFFFFF


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM with Spark's classes and no session."""
    gateway = launch_gateway()
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)


@pytest.mark.parametrize(("shards", "tasks"), [(1, 1), (2, 2), (7, 7), (7, 1), (7, 3)])
def test_each_task_has_a_state_partition_of_its_own(jvm: Any, shards: int, tasks: int) -> None:
    """In every JVM, whatever the order in which its classes give their methods."""
    found = groups(SimpleNamespace(_jvm=jvm), shards, tasks)

    assert [murmur3(group, 42) % tasks for group in found] == [
        shard % tasks for shard in range(shards)
    ]


def murmur3(number: int, seed: int) -> int:
    """MurmurHash3_x86_32 of an integer's four bytes, signed."""
    k = _rotated(number * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    h = _rotated(seed ^ k, 13) * 5 + 0xE6546B64 & _WORD
    h ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & _WORD
    return h - (1 << 32) if h >> 31 else h


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _WORD
