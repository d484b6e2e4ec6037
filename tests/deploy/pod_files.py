"""What a pod's containers find in their environment and in their volumes."""

import base64
import os
import re
from pathlib import Path

from deploy.kube_api import ApiError, KubeApi, Object


class NotReadyError(Exception):
    """Something that a container needs is not there yet; `reason` is Kubernetes' word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PodFiles:
    """One pod's: fetched when the first container asks for it."""

    def __init__(self, api: KubeApi, pod: Object, ip: str, folder: Path) -> None:
        self._api = api
        self._pod = pod
        self._ip = ip
        self._folder = folder
        self._made: dict[str, Path] = {}
        self._base = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        self._group = pod["spec"].get("securityContext", {}).get("fsGroup")

    def hosts(self) -> Path:
        """/etc/hosts: the API server, the pod, and what headless services name."""
        name = self._pod["metadata"]["name"]
        lines = [
            "127.0.0.1 localhost",
            f"{self._api.host} kubernetes.default.svc kubernetes",
            f"{self._ip} {name}",
        ]
        # A node may see its own pods only.
        mine = f"fieldSelector=spec.nodeName%3D{self._pod['spec']['nodeName']}"
        pods = self._api.get(f"{self._base}/pods?{mine}")["items"]
        for service in self._api.get(f"{self._base}/services")["items"]:
            wanted = (service["spec"].get("selector") or {"": ""}).items()
            lines += [
                f"{pod['status']['podIP']} {service['metadata']['name']}"
                for pod in pods
                if wanted <= (pod["metadata"].get("labels") or {}).items()
                and pod.get("status", {}).get("podIP")
            ]
        path = self._folder / "hosts"
        path.write_text("\n".join(lines) + "\n")
        return path

    def environment(self, container: Object, given: dict[str, str]) -> dict[str, str]:
        """The container's variables over those of its image."""
        found = dict(given)
        found["HOSTNAME"] = self._pod["metadata"]["name"]
        found["KUBERNETES_SERVICE_HOST"] = self._api.host
        found["KUBERNETES_SERVICE_PORT"] = str(self._api.port)
        for source in container.get("envFrom", []):
            kind = "configmaps" if "configMapRef" in source else "secrets"
            reference = source.get("configMapRef") or source["secretRef"]
            held = self._data(kind, reference["name"])
            found.update({name: value.decode() for name, value in held.items()})
        for variable in container.get("env", []):
            found[variable["name"]] = self._value(variable, container, found)
        return found

    def volume(self, name: str) -> Path:
        """The folder of a volume."""
        if name not in self._made:
            (source,) = [each for each in self._pod["spec"]["volumes"] if each["name"] == name]
            self._made[name] = self._filled(source, self._folder / "volumes" / name)
        return self._made[name]

    def _value(self, variable: Object, container: Object, before: dict[str, str]) -> str:
        if "valueFrom" not in variable:
            return expanded(variable.get("value", ""), before)
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
            return str(container.get("resources", {}).get(kind, {}).get(name, ""))
        kind = "configmaps" if "configMapKeyRef" in source else "secrets"
        reference = source.get("configMapKeyRef") or source["secretKeyRef"]
        return self._data(kind, reference["name"])[reference["key"]].decode()

    def _field(self, path: str) -> str:
        if path in ("status.podIP", "status.podIPs"):
            return self._ip
        found: Object | str = self._pod
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        return str(found)

    def _data(self, kind: str, name: str) -> dict[str, bytes]:
        try:
            found = self._api.get(f"{self._base}/{kind}/{name}")
        except ApiError as error:
            raise NotReadyError(
                "CreateContainerConfigError", f'{kind} "{name}": {error}'
            ) from None
        if kind == "secrets":
            return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}
        return {key: text.encode() for key, text in (found.get("data") or {}).items()}

    def _filled(self, source: Object, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in source:
            return self._grouped(folder)
        if "configMap" in source:
            part = source["configMap"]
            self._put(folder, self._data("configmaps", part["name"]), part.get("items"))
        elif "secret" in source:
            part = source["secret"]
            self._put(folder, self._data("secrets", part["secretName"]), part.get("items"))
        elif "projected" in source:
            for part in source["projected"]["sources"]:
                self._project(folder, part)
        elif "persistentVolumeClaim" in source:
            claim = source["persistentVolumeClaim"]["claimName"]
            return self._grouped(self._claimed(claim))
        else:
            raise NotReadyError("ContainerCreating", f"there are no volumes like {source}")
        return folder

    def _project(self, folder: Path, part: Object) -> None:
        if "configMap" in part:
            held = self._data("configmaps", part["configMap"]["name"])
            self._put(folder, held, part["configMap"].get("items"))
        elif "secret" in part:
            held = self._data("secrets", part["secret"]["name"])
            self._put(folder, held, part["secret"].get("items"))
        elif "downwardAPI" in part:
            for item in part["downwardAPI"]["items"]:
                value = self._field(item["fieldRef"]["fieldPath"]).encode()
                self._put(folder, {item["path"]: value}, None)
        else:
            asked = part["serviceAccountToken"]
            account = self._pod["spec"]["serviceAccountName"]
            name = {key: self._pod["metadata"][key] for key in ("name", "uid")}
            answer = self._api.post(
                f"{self._base}/serviceaccounts/{account}/token",
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {
                        "expirationSeconds": asked.get("expirationSeconds", 3607),
                        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", **name},
                    },
                },
            )
            token = answer["status"]["token"].encode()
            self._put(folder, {asked["path"]: token}, None)

    def _put(
        self, folder: Path, held: dict[str, bytes], items: list[dict[str, str]] | None
    ) -> None:
        wanted = items or [{"key": key, "path": key} for key in held]
        for item in wanted:
            if item["key"] not in held:
                raise NotReadyError("ContainerCreating", f"there is no key {item['key']}")
            path = folder / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held[item["key"]])
            # As a kubelet does: for the pod's group, and for nobody else.
            os.chown(path, 0, self._group or 0)
            path.chmod(0o440)

    def _claimed(self, claim: str) -> Path:
        bound = self._api.get(f"{self._base}/persistentvolumeclaims/{claim}")["spec"]
        volume = self._api.get(f"/api/v1/persistentvolumes/{bound['volumeName']}")["spec"]
        path = Path(volume["hostPath"]["path"])
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _grouped(self, folder: Path) -> Path:
        if self._group is None:
            folder.chmod(0o777)
        else:
            os.chown(folder, -1, self._group)
            folder.chmod(0o2775)
        return folder


def expanded(text: str, values: dict[str, str]) -> str:
    """A text with `$(NAME)` filled in; what is not known stays as it is."""
    return re.sub(r"\$\(([\w.-]+)\)", lambda found: values.get(found[1], found[0]), text)
