"""An empty data folder of a broker, formatted as Kafka's storage tool does it.

The tool is a JVM that takes as long to start as the broker, and writes two small files:
`meta.properties`, the ids of cluster, node and folder, and `bootstrap.checkpoint`, the features
that a new cluster of this version has.  The second is the same for every cluster, so it is
kept beside the jars when the tool has written it once; later folders get a copy, and ids
of their own.
"""

import base64
import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

# Kafka reads a folder as formatted if this file is there, so it is written last.
META = "meta.properties"
_FEATURES = "bootstrap.checkpoint"


def is_formatted(folder: Path) -> bool:
    """Whether a folder of logs has been formatted, so that a broker can start on it."""
    return (folder / META).exists()


def format_folder(folder: Path, lib: Path, node: int, tool: Callable[[str], None]) -> None:
    """Format a folder of logs for a cluster with a new id.

    `lib` is the folder of Kafka's jars; what is kept lies beside it.  `tool(cluster_id)` runs
    Kafka's storage tool on the folder, and is called where nothing is kept yet.
    """
    kept = lib.with_name(f"{lib.name}-{_FEATURES}")
    try:
        features = kept.read_bytes()
    except FileNotFoundError:
        tool(random_id())
        # Without it the tool is run again: a cache that can't be written costs time only.
        with contextlib.suppress(OSError):
            _write(kept, (folder / _FEATURES).read_bytes())
        return
    folder.mkdir(exist_ok=True)
    _write(folder / _FEATURES, features)
    properties = {
        "version": "1",
        "cluster.id": random_id(),
        "node.id": str(node),
        "directory.id": random_id(),
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    _write(folder / META, text.encode())


def random_id() -> str:
    """An id as Kafka makes them: 22 characters of URL-safe base64."""
    # One with a leading dash would read as an option of the tool.
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return text


def _write(file: Path, content: bytes) -> None:
    """Write a file as a whole: several processes may write the same one."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
