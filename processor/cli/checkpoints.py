"""Checkpoints as the commands that work offline meet them."""

from ikebana.arrangements.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint


def existing(location: str) -> tuple[Checkpoint, Birth]:
    """The checkpoint at a location, which must be one.

    Raises:
        CheckpointError: there is none.
    """
    checkpoint = Checkpoint(location)
    birth = checkpoint.birth()
    if birth is None:
        raise CheckpointError(
            f'"{location}" holds no checkpoint of ikebana',
            hint="Name the folder that run.checkpoint names.",
        )
    return checkpoint, birth
