"""A checkpoint's location that cannot be reached is told as such, whoever asks first."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.arrangements.errors import CheckpointError
from ikebana.processor.checkpoint import Birth, Checkpoint
from ikebana.processor.timing.reclock import SourceOffset

BIRTH = Birth("c", "", 1, {}, SourceOffset(-1, 0, 0, {}, ""))


@pytest.mark.parametrize(
    ("verb", "ask"),
    [
        ("read", Checkpoint.birth),
        ("read", lambda checkpoint: checkpoint.offset(0)),
        ("write", lambda checkpoint: checkpoint.write(BIRTH)),
        ("write", Checkpoint.probe),
    ],
    ids=["birth", "offset", "write", "probe"],
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
    assert "credentials" in caught.value.hint
