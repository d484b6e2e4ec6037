"""A real Kubernetes on this machine: etcd, API server, controllers, scheduler, one node.

There is no network of its own (services and policies are kept, not carried out) and
nothing makes volumes; the node is `nodelet.py`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deploy.container import Image
from deploy.kube_api import Object
from support.waiting import wait_until

_START_S = 180.0
_USERS = {
    "server": ("/CN=kube-apiserver", "serverAuth"),
    "admin": ("/O=system:masters/CN=admin", "clientAuth"),
    "controllers": ("/CN=system:kube-controller-manager", "clientAuth"),
    "scheduler": ("/CN=system:kube-scheduler", "clientAuth"),
    "kubelet": ("/O=system:nodes/CN=system:node:node1", "clientAuth,serverAuth"),
    "logs": ("/O=system:masters/CN=logs", "clientAuth"),
}
_NAMES = "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1"


@dataclass
class Cluster:
    """A running control plane; made by `running`."""

    binary: Path
    folder: Path
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """Where the API server is."""
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.conf"

    def kubectl(self, *arguments: str, told: str | None = None, check: bool = True) -> str:
        """Run kubectl as the administrator; what it printed."""
        done = subprocess.run(
            [self.binary, "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=told,
            capture_output=True,
            text=True,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout + done.stderr

    def apply(self, *objects: Object) -> None:
        """Make objects, or change them."""
        self.kubectl("apply", "--server-side", "-f", "-", told=yaml.safe_dump_all(objects))

    def get(self, *arguments: str) -> Any:
        """What kubectl gets, as JSON."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def start(self, name: str, *command: str | Path) -> None:
        """Start a process of the cluster, with its words in a file."""
        with (self.folder / f"{name}.log").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                ["nice", "-n", "5", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )

    def add_node(self, images: Mapping[str, Image]) -> None:
        """Start the node, which has these images."""
        table = self.folder / "images.json"
        table.write_text(json.dumps({name: image._asdict() for name, image in images.items()}))
        (self.folder / "pods").mkdir(exist_ok=True)
        port = str(self.ports["node"])
        tests = f"PYTHONPATH={Path(__file__).parents[1]}"
        node = (sys.executable, "-m", "deploy.nodelet", self.server, self.folder, port, table)
        self.start("nodelet", "env", tests, *node)
        wait_until(lambda: "True" in self._node_ready(), 60, "the node is ready")

    def _node_ready(self) -> str:
        path = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "nodes", "-o", path, check=False)

    def stop(self) -> None:
        """End everything, the node first."""
        for name in reversed(self.processes):
            process = self.processes[name]
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def running(binary: Path, folder: Path) -> Iterator[Cluster]:
    """A control plane without nodes, until the end of the block."""
    names = ("etcd", "peers", "api", "controllers", "scheduler", "node")
    made = Cluster(binary, folder, dict(zip(names, _free_ports(len(names)), strict=True)))
    try:
        _certify(made)
        _start(made)
        yield made
    finally:
        made.stop()


def _start(made: Cluster) -> None:
    binary, ports = made.binary, made.ports
    etcd = f"http://127.0.0.1:{ports['etcd']}"
    peers = f"http://127.0.0.1:{ports['peers']}"
    made.start(
        *("etcd", binary, "etcd", "--data-dir=etcd", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
        *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
        f"--initial-cluster=default={peers}",
    )
    made.start(
        *("apiserver", binary, "kube-apiserver", f"--etcd-servers={etcd}"),
        *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"),
        *(f"--secure-port={ports['api']}", "--endpoint-reconciler-type=none"),
        *("--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC"),
        *("--client-ca-file=ca.crt", "--tls-cert-file=server.crt"),
        *("--tls-private-key-file=server.key", "--allow-privileged=true"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *("--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key"),
        *("--kubelet-client-certificate=logs.crt", "--kubelet-client-key=logs.key"),
        *("--kubelet-preferred-address-types=InternalIP", "--profiling=false"),
        "--enable-admission-plugins=NodeRestriction",
    )

    def ready() -> bool:
        for name in ("etcd", "apiserver"):
            ended = made.processes[name].poll() is not None
            assert not ended, (made.folder / f"{name}.log").read_text()[-2000:]
        # What is not ready lists what is, such as "[+]ping ok".
        return made.kubectl("get", "--raw", "/readyz", check=False).strip() == "ok"

    wait_until(ready, _START_S, "the API server is ready")
    made.start(
        *("controllers", binary, "kube-controller-manager", "--kubeconfig=controllers.conf"),
        *("--leader-elect=false", "--use-service-account-credentials=true"),
        *("--service-account-private-key-file=sa.key", "--root-ca-file=ca.crt"),
        *("--bind-address=127.0.0.1", f"--secure-port={ports['controllers']}"),
    )
    made.start(
        *("scheduler", binary, "kube-scheduler", "--kubeconfig=scheduler.conf"),
        *("--leader-elect=false", "--bind-address=127.0.0.1"),
        f"--secure-port={ports['scheduler']}",
    )
    wait_until(
        lambda: "default" in made.kubectl("get", "serviceaccount", "default", check=False),
        _START_S,
        "the controllers work",
    )


def _certify(made: Cluster) -> None:
    """A certificate authority, everybody's certificates, and how they find the server."""

    def openssl(*arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=made.folder, check=True, stderr=subprocess.DEVNULL
        )

    new = ("-newkey", "rsa:2048", "-nodes")
    authority = ("-addext", "basicConstraints=critical,CA:TRUE", "-subj", "/CN=tests")
    uses = ("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
    out = ("-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-x509", *new, "-days", "30", *out, *authority, *uses)
    for name, (subject, usage) in _USERS.items():
        names = f"subjectAltName={_NAMES}\n" if "serverAuth" in usage else ""
        (made.folder / f"{name}.ext").write_text(f"extendedKeyUsage={usage}\n{names}")
        out = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("req", *new, *out, "-subj", subject)
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
        asked = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        openssl("x509", "-req", *signed, *asked)
        _kubeconfig(made, name)
    openssl("genrsa", "-out", "sa.key", "2048")
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def _kubeconfig(made: Cluster, name: str) -> None:
    here = made.folder
    cluster = {"server": made.server, "certificate-authority": str(here / "ca.crt")}
    user = {
        "client-certificate": str(here / f"{name}.crt"),
        "client-key": str(here / f"{name}.key"),
    }
    (here / f"{name}.conf").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": name, "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": name}}],
                "current-context": "c",
            }
        )
    )


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found: list[int] = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


def unable() -> str | None:
    """Why this machine can't run containers as processes, if it can't."""
    if os.geteuid() != 0:
        return "only root may mount and change users"
    missing = [name for name in ("openssl", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    probe = "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/m && mount -t overlay o -o "
    probe += "lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "bash", "-c", probe],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no overlay over the root: {tried.stderr.strip()}" if tried.returncode else None
