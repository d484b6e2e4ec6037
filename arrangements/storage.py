"""Where files lie: private folders, room on their disk, and failures of file systems that pass.

Object stores throttle, fail and become unavailable for a while.  Their clients retry a few times,
and then raise an error that has only a text; Spark passes on only texts, too.
"""

import errno
import re
import tempfile
from pathlib import Path

from ikebana.errors import IkebanaError, SpaceError, StorageError

# Enough for a log and a table of a small database.
_SOME = 16 << 20


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may read; an existing one stays unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def has_space(folder: Path) -> bool:
    """Whether the disk of a folder has room for some megabytes; it is tried."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_SOME))
            file.flush()
    except OSError:
        return False
    return True


# Messages of Arrow's file systems.
_ARROW = (
    r"AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|INTERNAL_FAILURE|SERVICE_UNAVAILABLE"
    r"|REQUEST_TIMEOUT|THROTTLING|UNKNOWN \(HTTP status (?:429|5\d\d)\))",
    r"google::cloud::Status\((?:UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED)",
)
# Messages of Hadoop's file systems, by the names of their exceptions.
_HADOOP = (
    r"s3a\.AWSServiceThrottledException",
    r"s3a\.AWSStatus500Exception",
    r"s3a\.AWSClientIOException",
    r"s3a\.AWSApiCallTimeoutException",
    r"s3a\.AWSNoResponseException",
    r"s3a\.HttpChannelEOFException",
    r"Unable to execute HTTP request",
    r"\(Service: S3, Status Code: (?:429|5\d\d),",
)
_AWAY = re.compile("|".join(f"(?:{each})" for each in (*_ARROW, *_HADOOP)))
_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_outage(text: str) -> bool:
    """Whether the text of an error says that an object store was temporarily unavailable."""
    return _AWAY.search(text) is not None


def temporary_error(error: OSError, what: str) -> IkebanaError | None:
    """Convert an error that may be temporary to an error of ours; None for any other.

    `what` is the beginning of the message.
    """
    if error.errno in _FULL:
        return SpaceError(f"{what}: {error}", hint="Make space there.")
    if is_outage(str(error)):
        return StorageError(f"{what}: {error}")
    return None
