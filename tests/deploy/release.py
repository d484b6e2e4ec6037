"""The release of the demo pipeline on the tests' cluster, and what can be done to it."""

import itertools
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.charts import ROOT, Object, run_helm, setting
from deploy.cluster import Cluster
from ikebana.codecs.canonical import canonical
from ikebana.processor.cli.demo import _flights
from ikebana.processor.kafka.broker import Broker, free_port
from support.output_judge import judge, progress_of, truth_of
from support.pipeline_processes import create, produce
from support.waiting import wait_until

PIPELINE = ROOT / "examples" / "whereabouts.yaml"
IMAGE = "ikebana:test"
# The same with the jars for object stores, as docs/kubernetes.md has it.
WITH_JARS = "ikebana:object-store"
SPACE = "stream"
SLICE = 6_000
SECRET = "hunter2-of-the-secret"
EXECUTORS = "app.kubernetes.io/component=executor"


def volume(name: str, folder: Path, mode: str) -> Object:
    """A volume on this machine; nothing makes volumes here by itself."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": [mode],
            "hostPath": {"path": str(folder / "volume")},
        },
    }


class Release:
    """The release, and the topics that it reads and writes."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        self.cluster = cluster
        self.servers = broker.bootstrap_servers
        self._flights: Iterator[Any] = _flights(None)
        create(self.servers, "flights", 4)
        self.port = free_port()

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm; what it printed."""
        done = run_helm(
            *arguments, f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={SPACE}"
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def values(self, **more: object) -> tuple[str, ...]:
        """Options of the release; `more` are values by their paths."""
        return (
            f"--set-file=pipeline.file={PIPELINE}",
            *setting(
                {
                    "fullnameOverride": "demo",
                    "image.repository": IMAGE.split(":")[0],
                    "image.tag": IMAGE.split(":")[1],
                    "kafka.bootstrapServers": self.servers,
                    # Not used over plain text, and to be seen nowhere.
                    "kafka.settingsFrom": {
                        "sasl.password": {"secret": "kafka-user", "key": "word"}
                    },
                    "checkpoint.volume.accessModes": ["ReadWriteMany"],
                    "checkpoint.volume.storageClass": "-",
                    "executors.count": 2,
                    "executors.memory": "512m",
                    "executors.memoryOverhead": "512m",
                    "executors.cores": 1,
                    "executors.requestCores": "100m",
                    "driver.memory": "512m",
                    "driver.resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                    "settings.run": {"shards": 2, "heartbeat": "1s"},
                    "settings.source": {"max_records_per_batch": 2000},
                    "http.port": self.port,
                    "console.port": free_port(),
                    "probes.readiness": {"periodSeconds": 1, "failureThreshold": 1},
                    **more,
                }
            ),
        )

    def feed(self) -> None:
        """Write the next flights."""
        produce(self.servers, "flights", itertools.islice(self._flights, SLICE))

    def truth(self) -> dict[bytes, bytes]:
        """What the flights come to."""
        last = truth_of(self.servers, "flights")
        return {key: canonical(value) for key, value in last.items() if key}

    def published(self, topic: str) -> bool:
        """Whether a topic of updates comes to all flights that were written."""
        return judge(self.servers, topic, self.truth()) == {}

    def committed(self) -> int:
        """The last batch whose progress is published; -1 for none."""
        told = progress_of(self.servers, "whereabouts")
        return told[-1].batch if told else -1

    def wait_for_batches(self, more: int) -> None:
        """Return when so many batches more have been committed."""
        goal = self.committed() + more
        try:
            wait_until(lambda: self.committed() >= goal, 240, f"batch {goal} is committed")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods that live, by label."""
        found = self.cluster.get("pods", "-n", SPACE, "-l", selector)["items"]
        return [
            pod
            for pod in found
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def logs(self) -> str:
        """What the driver has said, for a failure."""
        return self.cluster.kubectl("logs", "-n", SPACE, "demo-0", "--tail=60", check=False)

    def drained(self) -> bool:
        """Whether the last batch left nothing behind."""
        pod = self.cluster.get("pod", "-n", SPACE, "demo-0")
        address = f"http://{pod['status'].get('podIP')}:{self.port}/metrics"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                told = answer.read().decode().splitlines()
        except OSError:
            return False
        behind = [line for line in told if line.startswith("ikebana_behind_offsets")]
        return bool(behind) and all(float(line.split()[-1]) == 0 for line in behind)

    def said(self, word: str) -> list[str]:
        """Where a word is to be read: logs, checkpoint, ConfigMaps, pods."""
        found = list(self.cluster.folder.glob("pods/*/*.log"))
        volume = self.cluster.get("persistentvolume", "shared")["spec"]["hostPath"]["path"]
        found += [path for path in Path(volume).rglob("*") if path.is_file()]
        read = [str(path) for path in found if word.encode() in _content(path)]
        for kind in ("configmaps", "pods", "events"):
            read += [kind] if word in json.dumps(self.cluster.get(kind, "-n", SPACE)) else []
        return read


def _content(path: Path) -> bytes:
    """What is in a file; nothing in one that has gone since, as Spark's temporary ones do."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def kill(program: str, said: str) -> None:
    """Kill the one process of a program that has this among its arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text().split("\0")
        except OSError:
            continue
        if program in line[0] and said in " ".join(line):
            found.append(int(path.parent.name))
    (pid,) = found
    os.kill(pid, signal.SIGKILL)
