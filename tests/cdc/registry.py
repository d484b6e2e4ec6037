"""A real schema registry, Apicurio, for the length of a `with` block; it keeps nothing."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc import child
from cdc.fetched import Archive, fetched, java
from ikebana.processor.kafka.broker import free_port
from support.waiting import wait_until

# The last version that runs on Java 17.
VERSION = "2.6.13.Final"

_JVM_OPTIONS = child.java_options(384)


@dataclass(frozen=True)
class ApicurioRegistry:
    """A registry that answers: by Confluent's protocol at `url`, by its own at `own_url`."""

    place: str

    @property
    def url(self) -> str:
        """What `registry: {url: ...}` of a pipeline has."""
        return f"{self.place}/apis/ccompat/v7"

    @property
    def own_url(self) -> str:
        """What Apicurio's converters have."""
        return f"{self.place}/apis/registry/v2"


def installed() -> tuple[Path, Path]:
    """Java, and the folder of the registry, which is fetched the first time (142 MB).

    Raises:
        Unavailable: Java is missing, or it could not be fetched.
    """
    archive = Archive("io.apicurio", "apicurio-registry-app", VERSION, "all")
    return java(), fetched(f"apicurio-{VERSION}", [archive])


@contextmanager
def running() -> Iterator[ApicurioRegistry]:
    """Run a registry.  Raises: Unavailable."""
    machine, lib = installed()
    with child.temporary_folder("registry") as folder:
        port = free_port()
        settings = {
            "quarkus.http.port": port,
            "quarkus.http.host": "127.0.0.1",
            "quarkus.log.level": "WARN",
        }
        jar = next(lib.glob("apicurio-registry-app-*-runner.jar"))
        options = [f"-D{name}={value}" for name, value in settings.items()]
        command = [str(machine), *_JVM_OPTIONS, *options, "-jar", str(jar)]
        found = ApicurioRegistry(f"http://127.0.0.1:{port}")
        with child.running("the registry", command, folder) as server:

            def ready() -> bool:
                server.check()
                try:
                    with urllib.request.urlopen(f"{found.url}/schemas/types", timeout=10):
                        return True
                except (urllib.error.URLError, OSError):
                    return False

            wait_until(ready, 300, "the schema registry answers")
            yield found
