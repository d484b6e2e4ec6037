"""A full disk stops the following of a topic, and nothing else."""

import os
from pathlib import Path

import pytest

from chaos.small_disks import full, small
from support.served_topics import MemoryTopics, caught_up, serving
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


def test_what_was_there_is_read_while_the_disk_is_full_and_the_rest_comes_later(
    tmp_path: Path,
) -> None:
    """The local copy is neither damaged nor built again."""
    topics, said = MemoryTopics(), list[str]()
    topics.close("out", 1, (b"k", b"old", 0, 1))
    with (
        small(tmp_path / "disk", 64),
        serving(topics, tmp_path / "disk", "out", say=said.append) as service,
    ):
        caught_up(service, topics, "out")
        with full(tmp_path / "disk"):
            topics.close("out", 2, (b"k", b"old", 1, -1), (b"k", b"new" * 5000, 1, 1))
            wait_until(lambda: bool(said), 20, "word of the full disk")
            assert service.view("out").get(b"k", 0) == {b"old": 1}
            assert service.failure is None
        caught_up(service, topics, "out")

        assert service.view("out").get(b"k", 1) == {b"new" * 5000: 1}
        assert service.view("out").get(b"k", 0) == {b"old": 1}
    assert len(said) == 1
    assert "a disk is full" in said[0]
