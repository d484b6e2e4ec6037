"""A small kubelet for tests, on one machine and without a container engine.

It registers a node, watches the pods that the scheduler binds to it, runs their
containers as processes and reports their state, so that StatefulSets, Helm's waiting
and Spark's executors work as in a cluster.  Each pod has an address of its own in
127.0.0.0/8, and the host's network.  It needs root.
"""

import argparse
import http.client
import http.server
import json
import shutil
import signal
import ssl
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlparse

from deploy.container import Container, Image, now
from deploy.kube_api import ApiError, KubeApi, Object
from deploy.pod_files import NotReadyError, PodFiles

NODE = "node1"
_HEARTBEAT_S = 10.0
_LOOK_EVERY_S = 0.1
_CONFLICT = 409
_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}


def log(*told: object) -> None:
    """One line."""
    print(time.strftime("%H:%M:%S"), *told, flush=True)


class Pod(threading.Thread):
    """One pod's life, from its first container to its last word."""

    def __init__(self, node: "Node", found: Object, ip: str) -> None:
        super().__init__(daemon=True)
        self.found = found
        self.gone = False
        meta = found["metadata"]
        self.key = (meta["namespace"], meta["name"])
        self._path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self._node = node
        self._ip = ip
        self._folder = node.folder / meta["uid"]
        self._folder.mkdir(parents=True)
        self._folder.chmod(0o755)
        self._told: Object | None = None
        self._since = now()
        files = PodFiles(node.api, found, ip, self._folder)
        spec = found["spec"]

        def made(part: str) -> list[Container]:
            return [Container(each, found, files, ip, self._folder) for each in spec.get(part, [])]

        self.init = made("initContainers")
        self.containers = made("containers")

    @property
    def ending(self) -> bool:
        """Whether it is to stop."""
        return self.gone or "deletionTimestamp" in self.found["metadata"]

    def run(self) -> None:
        """Live."""
        try:
            if self._initialised():
                self._live()
            self._end()
        except Exception as error:  # noqa: BLE001 -- a pod's trouble must not be the node's
            log(self.key, "failed in the nodelet:", repr(error))
        finally:
            for folder in self._folder.glob("root-*"):
                shutil.rmtree(folder, ignore_errors=True)

    def _initialised(self) -> bool:
        self._report("Pending")
        for container in self.init:
            while not self.ending:
                self._begin(container, "Pending")
                while container.alive and not self.ending:
                    self._pause()
                if container.alive or container.reap() == 0:
                    break
                container.restarts += 1
                self._report("Pending")
                self._pause(self._node.backoff_s)
        return not self.ending

    def _begin(self, container: Container, phase: str) -> None:
        """Start a container, as soon as what it needs is there."""
        while not self.ending:
            try:
                container.start(self._node.images)
            except (NotReadyError, ApiError) as error:
                reason = getattr(error, "reason", "ContainerCreating")
                container.state = {"waiting": {"reason": reason, "message": str(error)}}
                self._report(phase)
                self._pause(1.0)
            else:
                log(self.key, container.name, "started")
                return

    def _live(self) -> None:
        policy = self.found["spec"].get("restartPolicy", "Always")
        for container in self.containers:
            self._begin(container, "Pending")
        ended: dict[str, int] = {}
        while not self.ending:
            for container in self.containers:
                if container.alive and (failed := container.probe()):
                    log(self.key, container.name, failed, "failed: it is restarted")
                    container.stop(self._grace())
                if (code := container.reap()) is None:
                    continue
                log(self.key, container.name, "ended with", code)
                if policy == "Never" or (policy == "OnFailure" and code == 0):
                    ended[container.name] = code
                else:
                    self._report("Running")
                    self._pause(self._node.backoff_s if container.restarts else 0)
                    container.restarts += 1
                    self._begin(container, "Running")
            if len(ended) == len(self.containers):
                self._report("Failed" if any(ended.values()) else "Succeeded")
                while not self.ending:
                    self._pause()
                return
            self._report("Running")
            self._pause()

    def _end(self) -> None:
        stopping = [
            threading.Thread(target=container.stop, args=(self._grace(),))
            for container in [*self.init, *self.containers]
            if container.alive
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        codes = [container.reap() for container in self.containers]
        log(self.key, "stopped with", codes)
        if self.gone:
            return
        self._report("Failed" if any(codes) else "Succeeded")
        uid = {"uid": self.found["metadata"]["uid"]}
        try:
            self._node.api.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": uid})
        except ApiError as error:
            log(self.key, "could not be deleted:", error)

    def _grace(self) -> float:
        if self.gone:
            return 0
        asked = self.found["metadata"].get("deletionGracePeriodSeconds")
        default = self.found["spec"].get("terminationGracePeriodSeconds", 30)
        return float(default if asked is None else asked)

    def _pause(self, seconds: float = _LOOK_EVERY_S) -> None:
        end = time.monotonic() + seconds
        while not self.ending and time.monotonic() < end:
            self._node.halted.wait(_LOOK_EVERY_S)

    def _report(self, phase: str) -> None:
        ready = phase == "Running" and all(each.ready for each in self.containers)
        holds = {"Initialized": phase != "Pending", "PodScheduled": True}
        holds |= {"ContainersReady": ready, "Ready": ready}
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": self._ip,
            "podIPs": [{"ip": self._ip}],
            "startTime": self._since,
            "containerStatuses": [each.status() for each in self.containers],
            "initContainerStatuses": [each.status() for each in self.init],
            "conditions": [{"type": name, "status": str(value)} for name, value in holds.items()],
        }
        if status == self._told:
            return
        uid = {"uid": self.found["metadata"]["uid"]}
        try:
            self._node.api.patch(f"{self._path}/status", {"metadata": uid, "status": status})
            self._told = json.loads(json.dumps(status))
        except ApiError as error:
            log(self.key, "status:", error)


class Node:
    """A node and its pods."""

    def __init__(self, api: KubeApi, folder: Path, images: dict[str, Image], port: int) -> None:
        self.api = api
        self.folder = folder
        self.images = images
        self.backoff_s = 2.0
        self.halted = threading.Event()
        self._port = port
        self._pods: dict[str, Pod] = {}
        self._addresses = (
            f"127.0.{third}.{last}" for third in range(1, 9) for last in range(1, 255)
        )

    def register(self) -> None:
        """Make the node, and its lease, unless they are there already."""
        named = {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}
        self._unless_there(
            "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": named}
        )
        self._unless_there(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": NODE},
                "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40},
            },
        )

    def heartbeat(self) -> None:
        """Say that the node is well, until it is halted."""
        room = {"cpu": "16", "memory": "32Gi", "pods": "110"}
        calm = [
            {"type": name, "status": "False", "reason": "Enough"}
            for name in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        while not self.halted.is_set():
            status = {
                "capacity": room,
                "allocatable": room,
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                "conditions": [{**each, "lastHeartbeatTime": now()} for each in (_READY, *calm)],
            }
            moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            try:
                self.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})
                self.api.patch(
                    f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}",
                    {"spec": {"renewTime": moment}},
                )
            except (OSError, ApiError, http.client.HTTPException) as error:
                log("heartbeat:", error)
            self.halted.wait(_HEARTBEAT_S)

    def follow(self) -> None:
        """Follow what the API server says of this node's pods, whatever happens to it."""
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}"
        while not self.halted.is_set():
            try:
                listed = self.api.get(path)
                for found in listed["items"]:
                    self._see(found)
                there = {found["metadata"]["uid"] for found in listed["items"]}
                for uid, pod in self._pods.items():
                    pod.gone = pod.gone or uid not in there
                for event in self.api.watch(path, listed["metadata"]["resourceVersion"]):
                    if event["type"] == "ERROR":
                        break
                    if event["type"] == "DELETED":
                        self._forget(event["object"]["metadata"]["uid"])
                    else:
                        self._see(event["object"])
            except (OSError, ApiError, http.client.HTTPException) as error:
                log("watch:", error)
                self.halted.wait(1.0)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The newest pod of a name."""
        found = [pod for pod in self._pods.values() if pod.key == (namespace, name)]
        return found[-1] if found else None

    def halt(self) -> None:
        """End every process at once."""
        self.halted.set()
        for pod in self._pods.values():
            for container in [*pod.init, *pod.containers]:
                if container.alive:
                    container.signal(signal.SIGKILL)

    def _see(self, found: Object) -> None:
        uid = found["metadata"]["uid"]
        if uid in self._pods:
            self._pods[uid].found = found
        elif found.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self._pods[uid] = Pod(self, found, next(self._addresses))
            self._pods[uid].start()

    def _forget(self, uid: str) -> None:
        if uid in self._pods:
            self._pods[uid].gone = True

    def _unless_there(self, path: str, wanted: Object) -> None:
        try:
            self.api.post(path, wanted)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise


def serve_logs(node: Node, port: int, certificate: Path, key: Path) -> None:
    """The part of a kubelet's own port that `kubectl logs` asks."""

    class Logs(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, *rest = urlparse(self.path).path.split("/")
            pod = node.pod(rest[0], rest[1]) if kind == "containerLogs" else None
            if pod is None:
                self.send_error(http.client.NOT_FOUND)
                return
            (named,) = [each for each in [*pod.init, *pod.containers] if each.name == rest[2]]
            text = named.log.read_bytes()
            lines = int(dict(parse_qsl(urlparse(self.path).query)).get("tailLines", "0"))
            if lines:
                text = b"".join(text.splitlines(keepends=True)[-lines:])
            self.send_response(http.client.OK)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Logs)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    """Be a node until SIGTERM: nodelet.py SERVER FOLDER PORT IMAGES."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("folder", type=Path, help="where the certificates are, and the pods")
    parser.add_argument("port", type=int)
    parser.add_argument("images", type=Path, help="JSON: images by name")
    given = parser.parse_args()
    certificate, key = given.folder / "kubelet.crt", given.folder / "kubelet.key"
    api = KubeApi(given.server, given.folder / "ca.crt", certificate, key)
    images = {name: Image(**image) for name, image in json.loads(given.images.read_text()).items()}
    node = Node(api, given.folder / "pods", images, given.port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    node.register()
    serve_logs(node, given.port, certificate, key)
    threading.Thread(target=node.heartbeat, daemon=True).start()
    try:
        node.follow()
    finally:
        node.halt()


if __name__ == "__main__":
    main()
