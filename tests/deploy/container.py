"""A container as a process: its own mounts, process ids and host name, the host's network.

Its root is its image's files over another root, such as the host's own.  User, groups,
capabilities, a read-only root and no new privileges are as the pod says.
"""

import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from deploy.kube_api import Object
from deploy.pod_files import NotReadyError, expanded

# Runs inside of the new namespaces, in the Python that the host has.
_STAGE = """
import ctypes, json, os, sys
c = json.loads(sys.argv[1])
prctl = ctypes.CDLL(None).prctl
os.chroot(c["root"])
os.chdir(c["workdir"])
if c["drop"]:
    for capability in range(64):
        prctl(24, capability, 0, 0, 0)
os.setgroups(c["groups"])
os.setgid(c["gid"])
os.setuid(c["uid"])
os.umask(0o022)
if c["no_new_privileges"]:
    prctl(38, 1, 0, 0, 0)
try:
    os.execvpe(c["command"][0], c["command"], c["environment"])
except OSError as error:
    sys.stderr.write(f"{c['command'][0]}: {error}\\n")
    os._exit(127)
"""


class Image(NamedTuple):
    """What a container is made of: files of its own over a root, which may be the host's."""

    root: str
    files: str
    mounts: dict[str, str]
    environment: dict[str, str]
    entrypoint: list[str]
    workdir: str


class Files(Protocol):
    """What a container finds in its environment and in its volumes."""

    def hosts(self) -> Path:
        """Its /etc/hosts."""
        ...

    def environment(self, container: Object, given: dict[str, str]) -> dict[str, str]:
        """Its variables over those of its image."""
        ...

    def volume(self, name: str) -> Path:
        """The folder or file of a volume."""
        ...


class Container:
    """One container of a pod, over its restarts.

    It has the host's network, or that of the process `network`.
    """

    def __init__(
        self,
        spec: Object,
        pod: Object,
        files: Files,
        ip: str,
        folder: Path,
        network: int | None = None,
    ) -> None:
        self.name: str = spec["name"]
        self.spec = spec
        self.log = folder / f"{self.name}.log"
        self.restarts = 0
        self.ready = self.started = False
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self._pod = pod
        self._files = files
        self._ip = ip
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._network = network
        self._stage: Object = {}
        self._probed: dict[str, float] = {}
        self._failed: dict[str, int] = {}

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, images: dict[str, Image]) -> None:
        """Start its process.  Raises: NotReadyError."""
        if self.spec["image"] not in images:
            raise NotReadyError("ErrImagePull", f"there is no image {self.spec['image']}")
        image = images[self.spec["image"]]
        environment = self._files.environment(self.spec, image.environment)
        secured = {
            **self._pod["spec"].get("securityContext", {}),
            **self.spec.get("securityContext", {}),
        }
        if secured.get("runAsNonRoot") and not secured.get("runAsUser"):
            raise NotReadyError("CreateContainerConfigError", "the image would run as root")
        command = self.spec.get("command") or image.entrypoint
        root = self._folder / f"root-{self.name}-{self.restarts}"
        root.mkdir(parents=True, exist_ok=True)
        self._stage = {
            "root": str(root),
            "workdir": self.spec.get("workingDir") or image.workdir,
            "command": [
                expanded(part, environment) for part in command + self.spec.get("args", [])
            ],
            "environment": environment,
            "uid": secured.get("runAsUser", 0),
            "gid": secured.get("runAsGroup", 0),
            "groups": [secured["fsGroup"]] if "fsGroup" in secured else [],
            "drop": "ALL" in secured.get("capabilities", {}).get("drop", []),
            "no_new_privileges": secured.get("allowPrivilegeEscalation") is False,
        }
        script = self._mounts(root, image, bool(secured.get("readOnlyRootFilesystem")))
        network = f"--net=/proc/{self._network or 'self'}/ns/net"
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *(
                        "nsenter",
                        network,
                        "unshare",
                        "--mount",
                        "--uts",
                        "--propagation",
                        "private",
                    ),
                    *("--pid", "--fork", "--kill-child=SIGKILL", "/bin/bash", "-ec", script),
                    *(sys.executable, "-I", "-S", "-c", _STAGE, json.dumps(self._stage)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        self.state = {"running": {"startedAt": now()}}
        self.started = "startupProbe" not in self.spec
        self.ready = self.started and "readinessProbe" not in self.spec
        self._probed, self._failed = {}, {}

    def stop(self, grace_s: float) -> None:
        """As a kubelet does: the hook, SIGTERM, and after the grace period SIGKILL."""
        end = time.monotonic() + grace_s
        if hook := self.spec.get("lifecycle", {}).get("preStop"):
            self.inside(hook["exec"]["command"], grace_s)
        self.signal(signal.SIGTERM)
        while self.alive and time.monotonic() < end:
            threading.Event().wait(0.1)
        if self.alive:
            self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Signal the container's first process."""
        pid = self.first()
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
        elif self._process is not None:
            self._process.send_signal(number)

    def reap(self) -> int | None:
        """The exit code of a process that has ended, once."""
        if self._process is None or self.alive:
            return None
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        self._process = None
        self.ready = self.started = False
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        self.state = {"terminated": {**ended, "finishedAt": now()}}
        return code

    def probe(self) -> str | None:
        """Do what is due; the probe for which the container is to be restarted, if any."""
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = self.spec.get(kind)
            if probe is None or (kind == "startupProbe") == self.started:
                continue
            if time.monotonic() < self._probed.get(kind, 0) + probe.get("periodSeconds", 10):
                continue
            self._probed[kind] = time.monotonic()
            good = self._answers(probe)
            failed = self._failed[kind] = 0 if good else self._failed.get(kind, 0) + 1
            given_up = failed >= probe.get("failureThreshold", 3)
            if kind == "startupProbe" and good:
                self.started = True
                self.ready = "readinessProbe" not in self.spec
            elif kind == "readinessProbe":
                self.ready = good or (self.ready and not given_up)
            elif given_up:
                return kind
        return None

    def status(self) -> Object:
        """As a pod's status tells it."""
        told = {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.spec["image"],
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
        }
        if "waiting" not in self.state:
            told["containerID"] = f"nodelet://{self._pod['metadata']['uid']}-{self.name}"
        return told

    def inside(self, command: list[str], within_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as its user; a container that does not run fails it."""
        if (pid := self.first()) is None:
            return subprocess.CompletedProcess(command, 1, "", "it does not run")
        nsenter = shutil.which("nsenter")
        assert nsenter is not None
        user = (f"--setuid={self._stage['uid']}", f"--setgid={self._stage['gid']}")
        return subprocess.run(
            [nsenter, f"--target={pid}", "-a", "-r", *user, "timeout", str(within_s), *command],
            env=self._stage["environment"],
            capture_output=True,
            text=True,
            check=False,
        )

    def first(self) -> int | None:
        """The process that is number 1 inside."""
        if not self.alive or self._process is None:
            return None
        outer = self._process.pid
        children = Path(f"/proc/{outer}/task/{outer}/children")
        try:
            return int(children.read_text().split()[0])
        except (OSError, IndexError):
            return None

    def _answers(self, probe: Object) -> bool:
        within = probe.get("timeoutSeconds", 1)
        if "exec" in probe:
            return self.inside(probe["exec"]["command"], within).returncode == 0
        asked = probe["httpGet"]
        port = asked["port"]
        if isinstance(port, str):
            (port,) = [
                each["containerPort"] for each in self.spec["ports"] if each["name"] == port
            ]
        asking = http.client.HTTPConnection(self._ip, port, timeout=within)
        try:
            asking.request("GET", asked.get("path", "/"))
            return asking.getresponse().status < http.client.BAD_REQUEST
        except (OSError, http.client.HTTPException):
            return False
        finally:
            asking.close()

    def _mounts(self, root: Path, image: Image, read_only: bool) -> str:  # noqa: FBT001
        """Shell that lays out the container's files in its own mount namespace."""
        upper = f"{root}.upper"
        lines = [
            f"echo {shlex.quote(self._pod['metadata']['name'][:63])} > /proc/sys/kernel/hostname",
            # The host's root can't be below a layer that lies in it.
            f"mkdir -p {upper}; mount -t tmpfs tmpfs {upper}; mkdir {upper}/files {upper}/work",
            f"cp -a {image.files}/. {upper}/files",
            f"mount -t overlay overlay -o lowerdir={image.root},"
            f"upperdir={upper}/files,workdir={upper}/work {root}",
        ]
        binds = [("/etc/hosts", str(self._files.hosts()), True)]
        binds += [(inside, outside, True) for inside, outside in image.mounts.items()]
        for mount in self.spec.get("volumeMounts", []):
            outside = self._files.volume(mount["name"]) / mount.get("subPath", "")
            binds.append((mount["mountPath"], str(outside), mount.get("readOnly", False)))
        for inside, outside, fixed in sorted(binds):
            inner = f"{root}{_resolved((image.files, image.root), inside)}"
            if Path(outside).is_dir():
                lines.append(f"mkdir -p {inner}")
            else:
                lines.append(f"mkdir -p $(dirname {inner}); [ -e {inner} ] || touch {inner}")
            lines.append(f"mount --bind {outside} {inner}")
            if fixed:
                lines.append(f"mount -o remount,bind,ro {inner}")
        lines += [
            f"mkdir -p {root}/proc {root}/dev {root}/tmp {root}{image.workdir}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
        ]
        if read_only:
            lines.append(f"mount -o remount,ro {root}")
        return "\n".join([*lines, 'exec "$0" "$@"'])


def _resolved(layers: tuple[str, ...], path: str) -> str:
    """A path with the links of the image followed inside of it."""
    done = ""
    todo = [part for part in path.split("/") if part]
    while todo:
        here = f"{done}/{todo.pop(0)}"
        link = next((layer + here for layer in layers if os.path.islink(layer + here)), None)
        if link is None:
            done = here
            continue
        target = os.readlink(link)
        done = "" if target.startswith("/") else done
        todo = [part for part in target.split("/") if part and part != "."] + todo
    return done


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
