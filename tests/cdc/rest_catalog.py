"""A real REST catalog of Iceberg for the length of a `with` block: that of Iceberg's own tests.

It keeps its tables in SQLite, in memory, and their files in a folder of this machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import RESTError

from cdc import child
from cdc.fetched import Archive, fetched, java
from ikebana.processor.kafka.broker import free_port
from support.waiting import wait_until

# The last version whose jar has all that it needs.
VERSION = "1.10.1"
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
# Hadoop's client of file systems looks into it.
_OPENED = "--add-opens=java.base/java.lang=ALL-UNNAMED"


def installed() -> Path:
    """The folder of the server, which is fetched the first time (212 MB).  Raises: Unavailable."""
    return fetched(
        f"iceberg-rest-{VERSION}",
        [Archive("org.apache.iceberg", "iceberg-open-api", VERSION, kind="jar")],
    )


@contextmanager
def running(warehouse: Path) -> Iterator[dict[str, str]]:
    """Run a server; gets the properties of the catalog.  Raises: Unavailable."""
    machine, lib = java(), installed()
    with child.temporary_folder("catalog") as folder:
        port = free_port()
        settings = {
            "CATALOG_WAREHOUSE": f"file://{warehouse}",
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
            "CATALOG_REST_PORT": str(port),
        }
        options = child.java_options(384, _OPENED)
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        command += [str(machine), *options, "-cp", f"{lib}/*", _MAIN]
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{port}"}
        with child.running("the catalog", command, folder) as server:

            def ready() -> bool:
                server.check()
                try:
                    load_catalog("rest", **catalog).list_namespaces()
                except (RESTError, OSError):
                    return False
                return True

            wait_until(ready, 60, "the catalog answers")
            yield catalog
