"""The chart as Helm renders it."""

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import tools

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "ikebana"
SMALL = CHART / "ci" / "small-values.yaml"
FULL = CHART / "ci" / "full-values.yaml"
OPERATOR = CHART / "ci" / "operator-values.yaml"
SERVE = CHART / "ci" / "serve-values.yaml"
DELIVER = CHART / "ci" / "deliver-values.yaml"

Object = dict[str, Any]


def tool(found: Any) -> Path:
    """A tool of `tools`, or a skipped test."""
    try:
        path: Path = found()
    except tools.MissingToolError as error:
        pytest.skip(str(error))
    return path


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm, whatever comes of it."""
    return subprocess.run(
        [tool(tools.helm), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def rendered(values: Path, *options: str) -> list[Object]:
    """What `helm template` makes, as release `r` in namespace `here`."""
    return [dict(found) for found in yaml.safe_load_all(_rendered(values, options)) if found]


@functools.cache
def _rendered(values: Path, options: tuple[str, ...]) -> str:
    done = run_helm("template", "r", CHART, "--namespace", "here", "-f", values, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def setting(values: dict[str, Any]) -> tuple[str, ...]:
    """Options that set values, by their paths, to any JSON."""
    return tuple(
        part
        for path, value in values.items()
        for part in ("--set-json", f"{path}={json.dumps(value)}")
    )


def only(found: list[Object], kind: str, name: str | None = None) -> Object:
    """The one object of a kind, or of a kind and a name."""
    (one,) = [
        each for each in found if each["kind"] == kind and name in (None, each["metadata"]["name"])
    ]
    return one


def kinds(found: list[Object]) -> set[str]:
    """The kinds of objects."""
    return {each["kind"] for each in found}


def settings_of(found: list[Object]) -> Object:
    """What the settings file holds."""
    name = next(
        each["metadata"]["name"]
        for each in found
        if each["kind"] == "ConfigMap" and "settings.yaml" in each["data"]
    )
    loaded: Object = yaml.safe_load(only(found, "ConfigMap", name)["data"]["settings.yaml"])
    return loaded


def executor_template(found: list[Object]) -> Object:
    """The pod that Spark makes executors of."""
    (text,) = [
        each["data"]["executor.yaml"]
        for each in found
        if each["kind"] == "ConfigMap" and "executor.yaml" in each["data"]
    ]
    loaded: Object = yaml.safe_load(text)
    return loaded


def driver(found: list[Object]) -> Object:
    """The driver's pod."""
    spec: Object = only(found, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def container(found: list[Object]) -> Object:
    """The driver's container."""
    first: Object = driver(found)["containers"][0]
    return first


def volume(pod: Object, name: str) -> Object:
    """A volume of a pod."""
    (one,) = [each for each in pod["volumes"] if each["name"] == name]
    return dict(one)
