"""Format the empty data folder of a broker, as Kafka's storage tool does.

The tool is a JVM that takes as long to start as the broker, and writes two small files:
`meta.properties` has the ids of cluster, node and folder, and `bootstrap.checkpoint` the
features of a new cluster of this version.  The second file is the same for every cluster.  So
it is cached beside the jars after the tool's first run; later folders get a copy of it and new
ids.
"""

import base64
import contextlib
import re
import uuid
from collections.abc import Callable
from pathlib import Path

from ikebana.processor.base.whole_files import write_whole

# Kafka takes a folder with this file for formatted, so it is written last.
META = "meta.properties"
_FEATURES = "bootstrap.checkpoint"


def is_formatted(folder: Path) -> bool:
    """Return whether a folder of logs has been formatted, so that a broker can start on it."""
    return (folder / META).exists()


def format_folder(folder: Path, lib: Path, node: int, tool: Callable[[str], None]) -> None:
    """Format a folder of logs for a cluster with a new id.

    `lib` is the folder of Kafka's jars, and the cached file lies beside it.  `tool(cluster_id)`
    runs Kafka's storage tool on the folder; it is called if there is no cached file yet.
    """
    cached = lib.with_name(f"{lib.name}-{_FEATURES}")
    try:
        features = cached.read_bytes()
    except FileNotFoundError:
        tool(random_id())
        # Without a cached file the tool runs again: a read-only cache costs only time.
        with contextlib.suppress(OSError):
            write_whole(cached, (folder / _FEATURES).read_bytes())
        return
    folder.mkdir(exist_ok=True)
    write_whole(folder / _FEATURES, features)
    properties = {
        "version": "1",
        "cluster.id": random_id(),
        "node.id": str(node),
        "directory.id": random_id(),
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    write_whole(folder / META, text.encode())


def cluster_id_of(folder: Path) -> str:
    """Read the id of the cluster that a folder of logs was formatted for; "" if it has none."""
    match = re.search(
        r"^cluster\.id=(.*)$", (folder / META).read_text(errors="replace"), re.MULTILINE
    )
    return match[1].strip() if match else ""


def random_id() -> str:
    """Make an id in Kafka's form: 22 characters of URL-safe base64."""
    # The tool would take an id with a leading dash for an option.
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return text
