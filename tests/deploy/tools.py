"""The tools of the deployment's tests: Go programs, built once into a cache folder.

No registry of binaries is needed, only Go and its module proxy.  They are kept in
`IKEBANA_DEPLOY_CACHE`, or else `ikebana-deploy` in the user's cache folder, under names
with their versions.  `tools.py chart` builds Helm, in about 4 minutes of CPU time; `tools.py
all` a Kubernetes control plane and an object store as well, in about 16.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

KUBERNETES = "1.36.3"
_HELM = "helm.sh/helm/v4/cmd/helm@v4.3.1"
_HELM_DOCS = "github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2"
# Reads compose files as Docker's own client does.
_COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
# Its repository has the definitions of Prometheus' resources.
_MONITORING = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
# An object store, which keeps objects as files.
_OBJECT_STORE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_CONTROL_PLANE = Path(__file__).parent / "controlplane"
_STRIPPED = "-s -w"


class MissingToolError(Exception):
    """A tool is not there and can't be built here; the message says why."""


def cache() -> Path:
    """Where the tools are kept."""
    given = os.environ.get("IKEBANA_DEPLOY_CACHE")
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(users) / "ikebana-deploy"


def helm() -> Path:
    """Helm.  Raises: MissingToolError."""
    return _installed("helm", _HELM)


def helm_docs() -> Path:
    """What writes the chart's README.  Raises: MissingToolError."""
    return _installed("helm-docs", _HELM_DOCS)


def compose() -> Path:
    """The Compose Specification's own reader of files.  Raises: MissingToolError."""
    return _installed("compose", _COMPOSE)


def versitygw() -> Path:
    """An object store that speaks S3, if it has been built.  Raises: MissingToolError."""
    path = _path_of("versitygw", _OBJECT_STORE)
    if not path.exists():
        raise MissingToolError("no object store is built: make deploy-tools")
    return path


def control_plane_path() -> Path:
    """Where the control plane is, or will be: by the hash of what it is built of."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((_CONTROL_PLANE / name).read_bytes())
    return cache() / "bin" / f"controlplane-{digest.hexdigest()[:12]}"


def control_plane() -> Path:
    """One binary of etcd, API server, controllers, scheduler and kubectl.

    Raises: MissingToolError.
    """
    major, minor, _ = KUBERNETES.split(".")
    flags = [_STRIPPED]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
        flags += [f"-X {package}.{name}={value}" for name, value in values.items()]

    def build(folder: Path) -> Path:
        made = folder / "controlplane"
        _go("build", "-trimpath", "-ldflags", " ".join(flags), "-o", str(made), ".")
        return made

    return _kept(control_plane_path(), build)


def monitoring_definitions() -> list[Path]:
    """The definitions of the resources of Prometheus' operator.  Raises: MissingToolError."""
    _go("mod", "download", _MONITORING)
    module = Path(_go("env", "GOMODCACHE").strip()) / _MONITORING / "example"
    names = ("podmonitors", "prometheusrules", "servicemonitors")
    return [
        module / "prometheus-operator-crd" / f"monitoring.coreos.com_{name}.yaml" for name in names
    ]


def promtool() -> Path:
    """Prometheus' own tester of rules; Debian has it in the package `prometheus`.

    Raises: MissingToolError.
    """
    found = shutil.which("promtool")
    if found is None:
        raise MissingToolError("promtool is not installed: Debian's package prometheus has it")
    return Path(found)


def on_path(name: str) -> Path:
    """A tool that a Python package brings, beside this Python or on the path.

    Raises: MissingToolError.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is not installed: pip install 'ikebana[deploy]'")
    return Path(found)


def _installed(name: str, module: str) -> Path:
    def build(folder: Path) -> Path:
        _go("install", "-trimpath", "-ldflags", _STRIPPED, module, binaries=folder)
        (made,) = folder.iterdir()
        return made

    return _kept(_path_of(name, module), build)


def _path_of(name: str, module: str) -> Path:
    return cache() / "bin" / f"{name}-{module.rpartition('@')[2]}"


def _kept(path: Path, build: Callable[[Path], Path]) -> Path:
    """The tool at `path`, built if it is missing; two runs at once build it once."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f".{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                build(Path(folder)).rename(path)
    return path


def _go(*arguments: str, binaries: Path | None = None) -> str:
    if shutil.which("go") is None:
        raise MissingToolError("go is not installed, and a tool of the tests is not built yet")
    environment = {**os.environ, "CGO_ENABLED": "0"}
    if binaries is not None:
        environment["GOBIN"] = str(binaries)
    done = subprocess.run(
        ["nice", "-n", "10", "go", *arguments],
        cwd=_CONTROL_PLANE if binaries is None else "/",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = " ".join(done.stderr.splitlines()[-3:])
        raise MissingToolError(f"could not `go {' '.join(arguments)}`: {said}")
    return done.stdout


if __name__ == "__main__":
    wanted = {
        "chart": [helm, helm_docs, compose],
        "all": [
            *(helm, helm_docs, compose, control_plane),
            lambda: _installed("versitygw", _OBJECT_STORE),
        ],
    }
    try:
        for tool in wanted[sys.argv[1]]:
            print(tool())
        monitoring_definitions()
    except MissingToolError as error:
        # The tests that need it say so, and are skipped.
        print(error, file=sys.stderr)
