"""The services of the compose file as containers that are processes, without an engine.

They share a network of their own, in which every service is 127.0.0.1.  ikebana is its
image, as in the cluster's test.  Kafka is the same version of Kafka, from its jars, set up
from its environment by the class that the image of Apache Kafka has for that.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy import tools
from deploy.charts import ROOT, Object, tool
from deploy.container import Container, Image
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import jars

COMPOSE = ROOT / "deploy" / "compose.yaml"
# What the image of Apache Kafka does when it starts.
_LAUNCH = """
setup() {
  java -cp "/opt/kafka/libs/*" kafka.docker.KafkaDockerWrapper setup \
    --default-configs-dir /etc/kafka/docker --mounted-configs-dir /mnt/shared/config \
    --final-configs-dir /opt/kafka/config 2>&1
}
said=$(setup) || grep -i "already formatted" <<<"$said" || { echo "$said"; exit 1; }
exec java -Xmx512m -cp "/opt/kafka/libs/*" kafka.Kafka /opt/kafka/config/server.properties
"""
_KAFKA_USER = 1000
# A network without its loopback up has nothing at all; it lasts as long as our end of the pipe.
_HOLD_NETWORK = """
import fcntl, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x49))
print("up", flush=True)
sys.stdin.read()
"""


def read_compose(path: Path) -> subprocess.CompletedProcess[str]:
    """The file as JSON, checked, filled in and with absolute paths."""
    return subprocess.run(
        [tool(tools.compose), "-format", "json", path],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def services() -> dict[str, Object]:
    """The services by name."""
    read = read_compose(COMPOSE)
    assert read.returncode == 0, read.stderr
    found: dict[str, Object] = json.loads(read.stdout)["services"]
    return found


def kafka_image(folder: Path) -> Image:
    """What the image of Apache Kafka has, over this machine's root."""
    folder.chmod(0o755)
    java = find_java(os.environ).resolve()
    config = folder / "opt" / "kafka" / "config"
    for place in (config, folder / "etc" / "kafka" / "docker", folder / "mnt/shared/config"):
        place.mkdir(parents=True)
    # The image's defaults, which count only if there is nothing in the environment.
    for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
        (folder / "etc" / "kafka" / "docker" / name).touch()
        (config / name).touch()
    for path in (config, *config.iterdir()):
        os.chown(path, _KAFKA_USER, _KAFKA_USER)
    return Image(
        root="/",
        files=str(folder),
        mounts={"/opt/java": str(java.parents[1]), "/opt/kafka/libs": str(jars(java))},
        environment={
            "PATH": "/opt/java/bin:/usr/bin:/bin",
            "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
        },
        entrypoint=["/bin/bash", "-ec", _LAUNCH],
        workdir="/",
    )


def users() -> dict[str, int]:
    """Whom each image's processes belong to."""
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    (own,) = re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE)
    return {"ikebana": int(own), "kafka": _KAFKA_USER}


class ServiceFiles:
    """The files of a service: its volumes by the paths where they are mounted."""

    def __init__(self, folder: Path, volumes: Mapping[str, Path]) -> None:
        self._folder = folder
        self._volumes = volumes

    def hosts(self) -> Path:
        """All services are one address."""
        path = self._folder / "hosts"
        path.write_text("127.0.0.1 localhost kafka ikebana\n")
        return path

    def environment(self, container: Object, given: dict[str, str]) -> dict[str, str]:
        return {**given, **container["environment"]}

    def volume(self, name: str) -> Path:
        return self._volumes[name]


def made(name: str, service: Object, folder: Path, network: int) -> Container:
    """A service's container; `folder` keeps its volumes when it is made anew."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    user = users()[name]
    volumes = {}
    for mount in service["volumes"]:
        if mount["type"] == "bind":
            volumes[mount["target"]] = Path(mount["source"])
            continue
        # A new named volume has the owner of the image's folder.
        kept = folder / mount["source"]
        kept.mkdir(exist_ok=True)
        os.chown(kept, user, -1)
        volumes[mount["target"]] = kept
    for place in service.get("tmpfs", ()):
        volumes[place] = folder / "tmpfs"
        volumes[place].mkdir(exist_ok=True)
        volumes[place].chmod(0o1777)
    spec = {
        "name": name,
        "image": service["image"],
        "args": service.get("command", []),
        "environment": service["environment"],
        "volumeMounts": [
            {"name": target, "mountPath": target, "readOnly": path.is_file()}
            for target, path in volumes.items()
        ],
        "securityContext": {
            "runAsUser": user,
            "runAsGroup": user,
            "readOnlyRootFilesystem": service.get("read_only", False),
            "capabilities": {"drop": service.get("cap_drop", [])},
            "allowPrivilegeEscalation": "no-new-privileges:true"
            not in service.get("security_opt", ()),
        },
    }
    pod = {"metadata": {"name": name, "uid": name}, "spec": {}}
    return Container(spec, pod, ServiceFiles(folder, volumes), "127.0.0.1", folder, network)


@contextmanager
def network() -> Iterator[int]:
    """The number of a process whose network has nothing but its own 127.0.0.1."""
    holder = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-I", "-S", "-c", _HOLD_NETWORK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"up\n"
        yield holder.pid
    finally:
        holder.communicate()


def within(network: int, program: str, *arguments: str) -> str:
    """Run a program of this machine's Python in that network; what it printed."""
    done = subprocess.run(
        ["nsenter", f"--net=/proc/{network}/ns/net", sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
