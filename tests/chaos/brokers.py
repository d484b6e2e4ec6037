"""A broker whose clients come through a proxy, while judges and loads reach it directly."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos.proxy import Proxy
from chaos.small_disks import small
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import Broker, free_port, jars

# Transactions that time out are aborted within a second of it.
_QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_PROXIED = "PROXIED"
_DISK_MB = 512


class ProxiedBroker(Broker):
    """A broker with a second listener, which tells its clients to come to the proxy's port."""

    def __init__(self, data: Path, settings: Mapping[str, str], host: str) -> None:
        java = find_java(os.environ)
        super().__init__(data, free_port(), {**_QUICK, **settings}, java, jars(java))
        self.behind = free_port()
        self.proxy_port = free_port()
        self.proxied_servers = f"{host}:{self.proxy_port}"

    def _write_files(self) -> None:
        super()._write_files()
        file = self.data / "broker.properties"
        found = dict(line.split("=", 1) for line in file.read_text().splitlines())
        found["listeners"] += f",{_PROXIED}://127.0.0.1:{self.behind}"
        found["advertised.listeners"] += f",{_PROXIED}://{self.proxied_servers}"
        names = ("CONTROLLER", "PLAINTEXT", _PROXIED)
        found["listener.security.protocol.map"] = ",".join(f"{name}:PLAINTEXT" for name in names)
        found["inter.broker.listener.name"] = "PLAINTEXT"
        file.write_text("".join(f"{key}={value}\n" for key, value in found.items()))


@contextmanager
def proxied(
    settings: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> Iterator[tuple[ProxiedBroker, Proxy]]:
    """Run a broker behind a proxy at an address of this machine, for the length of a `with`."""
    folder = Path(tempfile.mkdtemp(prefix="ikebana-chaos-broker-"))
    broker = ProxiedBroker(folder, settings or {}, host)
    try:
        with small(folder, _DISK_MB):
            try:
                broker.start()
                with Proxy(broker.proxy_port, broker.behind, host=host) as proxy:
                    yield broker, proxy
            finally:
                broker.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
