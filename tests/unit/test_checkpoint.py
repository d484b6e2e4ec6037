"""A checkpoint's location that cannot be reached is told as such, whoever asks first."""

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ikebana.errors import CheckpointError
from ikebana.processor.base import processes
from ikebana.processor.checkpoint.checkpoint import (
    Checkpoint,
    CheckpointFiles,
    CheckpointMetadata,
    Logged,
    _sealed,
)
from ikebana.processor.topics.source_offset import SourceOffset
from support.signals import handled_by

START = SourceOffset(-1, 0, 0, {}, "")
METADATA = CheckpointMetadata("c", "", 1, {}, START)


@pytest.mark.parametrize(
    ("verb", "ask"),
    [
        ("read", Checkpoint.metadata),
        ("read", lambda checkpoint: CheckpointFiles(checkpoint.location, 0).offset(0)),
        ("write", lambda checkpoint: checkpoint.write(METADATA)),
        ("write", Checkpoint.probe),
    ],
    ids=["metadata", "offset", "write", "probe"],
)
def test_a_location_that_cannot_be_reached_is_named(
    verb: str, ask: Callable[[Checkpoint], object], tmp_path: Path
) -> None:
    """One message with a remedy, and no stack of the file system's own error."""
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "checkpoint"

    with pytest.raises(CheckpointError) as caught:
        ask(Checkpoint(str(place)))

    assert caught.value.message.startswith(f'could not {verb} "{place}": ')
    assert caught.value.hint is not None
    assert "run.checkpoint" in caught.value.hint


class _Store:
    """An object store: a stream that is closed puts its object, with whatever was written."""

    type_name = "store"

    def __init__(self, signalled: threading.Event) -> None:
        self.objects = {"ikebana.json": b"of before"}
        self._signalled = signalled

    def create_dir(self, path: str, **_: Any) -> None:
        """There is nothing to make."""

    def open_output_stream(self, path: str) -> io.BytesIO:
        objects, signalled = self.objects, self._signalled

        class Stream(io.BytesIO):
            def write(self, content: Any) -> int:
                # One that comes just before the main thread waits for this one is not heard there.
                for _ in range(24):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                    if signalled.wait(5):
                        break
                assert signalled.is_set()
                return super().write(content)

            def close(self) -> None:
                objects[path.rpartition("/")[2]] = self.getvalue()
                super().close()

        return Stream()


def test_a_signal_while_metadata_are_written_leaves_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them would make the checkpoint one that cannot be read."""
    signalled = threading.Event()
    checkpoint = Checkpoint(str(tmp_path))
    monkeypatch.setattr(checkpoint, "_system", store := _Store(signalled))

    def asked(number: int, _: object) -> None:
        signalled.set()
        raise processes.Stopped(number)

    with handled_by(signal.SIGTERM, asked), pytest.raises(processes.Stopped):
        checkpoint.write(METADATA)

    assert store.objects["ikebana.json"].startswith(b'{"id":"c"')
    assert store.objects["ikebana.json"].endswith(b'"}')


def logged(folder: Path, first_batch: int, *offsets: SourceOffset) -> CheckpointFiles:
    """A layout whose offset log has these entries."""
    log = folder / "offsets"
    log.mkdir()
    for number, offset in enumerate(offsets):
        entry = msgspec.json.encode(offset.to_json()).decode()
        (log / str(number)).write_text(f"v1\n{{}}\n{entry}")
        (log / f".{number}.crc").write_text("sum")
    return CheckpointFiles(str(folder), first_batch)


@pytest.mark.parametrize("first_batch", [0, 7])
def test_a_first_batch_that_is_none_is_logged_anew(first_batch: int, tmp_path: Path) -> None:
    """The start itself was logged where there was nothing to read: nothing has come of it."""
    start = SourceOffset(first_batch - 1, 5, 5, {"in": {0: 3}}, "plan")
    layout = logged(tmp_path, first_batch, start)

    assert layout.logged() == Logged(None, first_batch - 1, first_batch - 1)
    layout.forget_nothing()
    assert list((tmp_path / "offsets").iterdir()) == []
    layout.forget_nothing()


def test_a_batch_is_dropped_from_the_end_of_the_log_while_nobody_has_committed_it(
    tmp_path: Path,
) -> None:
    """With its checksum; who finds that the log ends otherwise is told to start again."""
    offsets = [SourceOffset(number, 5, 5, {}, "plan") for number in (7, 8)]
    layout = logged(tmp_path, 7, *offsets)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    os.utime(tmp_path / "offsets" / "0", (1_000, 1_000))
    os.utime(tmp_path / "commits" / "0", (1_000, 1_002.5))

    for other in (7, 9):
        with pytest.raises(CheckpointError, match="ends at batch 8"):
            layout.drop(other)
    layout.drop(8)

    assert layout.logged() == Logged(offsets[0], 7, 7, took_s=2.5)
    assert {path.name for path in (tmp_path / "offsets").iterdir()} == {"0", ".0.crc"}
    with pytest.raises(CheckpointError, match="ends at batch 7"):
        layout.drop(7)


def test_a_first_batch_is_dropped_with_what_spark_has_begun_to_keep(tmp_path: Path) -> None:
    layout = logged(tmp_path, 0, SourceOffset(0, 5, 5, {}, "plan"))
    (tmp_path / "state" / "0").mkdir(parents=True)
    (tmp_path / "state" / "0" / "1.delta").write_text("")

    layout.drop(0)

    assert layout.is_empty()
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


@pytest.mark.parametrize("batches", [1, 2])
def test_batches_that_are_some_stay_in_the_log(batches: int, tmp_path: Path) -> None:
    """Whatever they read, and be they committed or not."""
    offsets = [SourceOffset(number, 5, 5, {}, "plan") for number in range(batches)]
    layout = logged(tmp_path, 0, *offsets)

    layout.forget_nothing()

    assert layout.logged() == Logged(offsets[-1], batches - 1, -1)
    assert len(list((tmp_path / "offsets").iterdir())) == 2 * batches


def test_any_damage_of_the_metadata_is_named(tmp_path: Path) -> None:
    """A plan of before that is another one by a bit would be taken for an edit of it."""
    checkpoint = Checkpoint(str(tmp_path))
    metadata = CheckpointMetadata(
        "c", checkpoint.identity, 2, {"name": "n", "inputs": [{"topic": "in"}]}, START
    )
    checkpoint.write(metadata)
    file = tmp_path / "ikebana.json"
    whole = file.read_bytes()

    assert checkpoint.metadata() == metadata
    for at in range(0, len(whole), 3):
        for damaged in (whole[:at], _flipped(whole, at, 1), _flipped(whole, at, 128)):
            file.write_bytes(damaged)
            for read in (checkpoint.metadata, checkpoint.relocate):
                # None if what is damaged is the hash's own name, and nothing else.
                refusal = refused(read, metadata)
                assert refusal is None or refusal.hint is not None
                file.write_bytes(damaged)


def refused(
    read: Callable[[], CheckpointMetadata | None], metadata: CheckpointMetadata
) -> CheckpointError | None:
    try:
        assert read() == metadata
    except CheckpointError as error:
        return error
    return None


def _flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


def test_metadata_without_a_hash_are_damaged(tmp_path: Path) -> None:
    """Whatever else they have: who changed them by hand may have broken them."""
    checkpoint = Checkpoint(str(tmp_path))
    metadata = CheckpointMetadata("c", checkpoint.identity, 2, {}, START)
    (tmp_path / "ikebana.json").write_bytes(msgspec.json.encode(metadata))

    with pytest.raises(CheckpointError, match="the hash at its end is missing"):
        checkpoint.metadata()


def test_fields_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    """As long as the format is the same."""
    checkpoint = Checkpoint(str(tmp_path))
    metadata = CheckpointMetadata("c", checkpoint.identity, 2, {}, START)
    later = msgspec.json.encode({**msgspec.to_builtins(metadata), "later": 1})
    (tmp_path / "ikebana.json").write_bytes(_sealed(later))

    assert checkpoint.metadata() == metadata
