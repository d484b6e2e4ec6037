"""Open a checkpoint for a command that works offline."""

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint


def existing(location: str) -> tuple[Checkpoint, Birth]:
    """Open the checkpoint at a location, with its metadata.

    Raises:
        CheckpointError: there is no checkpoint.
    """
    checkpoint = Checkpoint(location)
    birth = checkpoint.birth()
    if birth is None:
        raise CheckpointError(
            f'"{location}" holds no checkpoint of ikebana',
            hint="Name the folder that run.checkpoint names.",
        )
    return checkpoint, birth
