"""Everything that the chart makes is what Kubernetes and the operators define, offline."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import tools
from deploy.charts import (
    DELIVER,
    FULL,
    OPERATOR,
    SERVE,
    SMALL,
    Object,
    executor_template,
    only,
    rendered,
    tool,
)

# The oldest that the chart allows for, and a new one.
VERSIONS = ("1.28", "1.36")


def offences(objects: list[Object], folder: Path, version: str) -> str:
    """What the strict schemas of a version of Kubernetes find, if they find anything."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    done = subprocess.run(
        [
            tool(lambda: tools.on_path("kubernetes-validate")),
            *("--strict", "--no-warn", "-k", version, file),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def definitions() -> dict[tuple[str, str], Object]:
    """The schemas of custom resources, by version and kind."""
    files = sorted((Path(__file__).parent / "definitions").glob("*.yaml"))
    try:
        files += tools.monitoring_definitions()
    except tools.MissingToolError as error:
        pytest.skip(str(error))
    return {
        (f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"]): (
            version["schema"]["openAPIV3Schema"]
        )
        for file in files
        for each in yaml.safe_load_all(file.read_text())
        for version in each["spec"]["versions"]
    }


_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "number": (int, float),
}


def problems(value: Any, schema: Object, path: str = "") -> list[str]:
    """Where a value departs from the schema of a custom resource, as the API server judges."""
    kind = schema.get("type")
    if kind and not isinstance(value, _TYPES[kind]):
        return [f"{path}: {value!r} is not {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, list):
        return [
            found
            for at, item in enumerate(value)
            for found in problems(item, schema.get("items", {}), f"{path}[{at}]")
        ]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    known = schema.get("properties", {})
    any_other = schema.get("additionalProperties")
    missing = [
        f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value
    ]
    return missing + [
        found
        for name, item in value.items()
        for found in (
            problems(item, known.get(name) or any_other or {}, f"{path}.{name}")
            if name in known or any_other or not known
            else [f"{path}.{name} is unknown"]
        )
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "values", [SMALL, FULL, OPERATOR, SERVE, DELIVER], ids=lambda path: path.stem
)
def test_kubernetes_own(values: Path, version: str, tmp_path: Path) -> None:
    """Objects of Kubernetes, among them the pod that Spark makes executors of, are as defined."""
    found = rendered(values)
    pods = [executor_template(found)] if values == FULL else []
    for pod in pods:
        pod["metadata"]["name"] = "executor"
    if values == OPERATOR:
        made = only(found, "SparkApplication")["spec"]
        for role in ("driver", "executor"):
            pods.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": role, **made[role]["template"]["metadata"]},
                    "spec": made[role]["template"]["spec"],
                }
            )
    assert offences([*found, *pods], tmp_path, version) == ""


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    """The check above is able to fail."""
    found = only(rendered(SMALL), "StatefulSet")
    spec = {**found["spec"], "replicsa": 1}
    assert "replicsa" in offences([{**found, "spec": spec}], tmp_path, VERSIONS[-1])


@pytest.mark.parametrize("values", [FULL, OPERATOR], ids=lambda path: path.stem)
def test_custom_resources(values: Path) -> None:
    """Those of Prometheus', Strimzi's and Spark's operators are as defined."""
    known = definitions()
    custom = [each for each in rendered(values) if (each["apiVersion"], each["kind"]) in known]
    assert {each["apiVersion"].split("/")[0] for each in custom} == (
        {"monitoring.coreos.com", "kafka.strimzi.io"}
        | ({"sparkoperator.k8s.io"} if values == OPERATOR else set())
    )
    for each in custom:
        spec = known[each["apiVersion"], each["kind"]]["properties"]["spec"]
        assert problems(each["spec"], spec, "spec") == []


def test_a_wrong_custom_resource_is_found() -> None:
    """The check above is able to fail."""
    schema = definitions()["kafka.strimzi.io/v1", "KafkaUser"]
    wrong = {"spec": {"authentication": {"type": "password"}, "quota": {}}}
    found = problems(wrong, schema)
    assert [problem.split(":")[0] for problem in found] == [
        ".spec.authentication.type",
        ".spec.quota is unknown",
    ]
