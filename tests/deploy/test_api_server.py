"""The chart and a real API server: what it accepts, and what the accounts may do."""

import subprocess
from pathlib import Path

import pytest
import yaml

from deploy import tools
from deploy.charts import (
    CHART,
    FULL,
    OPERATOR,
    SMALL,
    executor_template,
    only,
    rendered,
    run_helm,
    setting,
    tool,
)
from deploy.cluster import Cluster


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Cluster:
    """The cluster, with the custom resources that the chart can make."""
    files = sorted((Path(__file__).parent / "definitions").glob("*.yaml"))
    files += tools.monitoring_definitions()
    for file in files:
        cluster.apply(*yaml.safe_load_all(file.read_text()))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own, which enforces the restricted standard."""
    name: str = request.node.name.replace("_", "-").replace("[", "-").replace("]", "").lower()[:50]
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    meta = {"name": name, "labels": labels}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    # The controllers make it; no pod is admitted before.
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=60s")
    return name


def helm(cluster: Cluster, namespace: str, *arguments: str | Path) -> str:
    """Run Helm in a namespace; what it printed."""
    done = run_helm(*arguments, f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("values", [SMALL, FULL, OPERATOR], ids=["small", "full", "operator"])
def test_everything_is_accepted(api: Cluster, namespace: str, values: Path) -> None:
    """Each object passes strict decoding, validation and admission, and is then made."""
    objects = [each for each in rendered(values) if each["kind"] != "Pod"]
    for each in objects:
        each["metadata"]["namespace"] = namespace
        for subject in each.get("subjects", []):
            subject["namespace"] = namespace
    api.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "-f", "-"),
        told=yaml.safe_dump_all(objects),
    )
    helm(api, namespace, "install", "r", CHART, "-f", values)
    assert "deployed" in helm(api, namespace, "status", "r")
    helm(api, namespace, "uninstall", "r")
    # The checkpoint belongs to the output topics, which Helm knows nothing of.
    claims = api.get("persistentvolumeclaims", "-n", namespace)["items"]
    assert len(claims) == (values != OPERATOR)


def test_a_misspelt_field_is_refused(api: Cluster, namespace: str) -> None:
    """The check above is able to fail."""
    service = only(rendered(SMALL), "Service")
    service["spec"]["clusterIp"] = "None"
    service["metadata"]["namespace"] = namespace
    told = api.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "-f", "-"),
        told=yaml.safe_dump(service),
        check=False,
    )
    assert 'unknown field "spec.clusterIp"' in told


ALLOWED = [
    ("create", "pods"),
    ("watch", "pods"),
    ("deletecollection", "pods"),
    ("create", "configmaps"),
    ("delete", "configmaps"),
]
REFUSED = [
    ("get", "secrets"),
    ("update", "configmaps"),
    ("list", "secrets"),
    ("create", "services"),
    ("create", "pods/exec"),
    ("create", "serviceaccounts/token"),
    ("update", "roles"),
    ("get", "statefulsets"),
    ("create", "persistentvolumeclaims"),
]


def test_the_drivers_rights(api: Cluster, namespace: str) -> None:
    """It may make executors, in its namespace, and nothing else; executors may do nothing."""
    helm(api, namespace, "install", "r", CHART, "-f", FULL, "--set", "strimzi.enabled=false")

    def can(account: str, verb: str, resource: str, where: str) -> bool:
        who = f"--as=system:serviceaccount:{namespace}:{account}"
        kind, _, part = resource.partition("/")
        asked = ("auth", "can-i", verb, kind, f"--subresource={part}", who, "-n", where)
        return api.kubectl(*asked, check=False).splitlines()[-1] == "yes"

    driving = {each: can("orders", *each, namespace) for each in ALLOWED + REFUSED}
    assert driving == {**dict.fromkeys(ALLOWED, True), **dict.fromkeys(REFUSED, False)}
    assert not any(can("orders", *each, "kube-system") for each in ALLOWED)
    assert not any(can("orders-executor", *each, namespace) for each in ALLOWED + REFUSED)


def test_rights_by_doing(api: Cluster, namespace: str) -> None:
    """With the driver's own token a pod from its template can be made, and no secret read."""
    helm(api, namespace, "install", "r", CHART, "-f", FULL, "--set", "strimzi.enabled=false")
    token = api.kubectl("create", "token", "orders", "-n", namespace).strip()

    def as_driver(*arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
        server = (f"--server={api.server}", f"--certificate-authority={api.folder}/ca.crt")
        return subprocess.run(
            [api.binary, "kubectl", *server, f"--token={token}", "-n", namespace, *arguments],
            input=told,
            env={"KUBECONFIG": "/dev/null", "HOME": "/"},
            capture_output=True,
            text=True,
            check=False,
        )

    executor = executor_template(rendered(FULL))
    executor["metadata"]["name"] = "executor-1"
    # These are made with the cluster, not by the chart.
    del executor["spec"]["priorityClassName"]
    made = as_driver("create", "-f", "-", told=yaml.safe_dump(executor))
    assert made.returncode == 0, made.stderr
    secrets = as_driver("get", "secrets")
    assert 'cannot list resource "secrets"' in secrets.stderr
    elsewhere = as_driver("get", "pods", "-n", "kube-system")
    assert 'cannot list resource "pods"' in elsewhere.stderr
    naked = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "naked"},
        "spec": {"containers": [{"name": "executor", "image": "ikebana:0.1.0"}]},
    }
    refused = as_driver("create", "-f", "-", told=yaml.safe_dump(naked))
    assert 'violates PodSecurity "restricted' in refused.stderr


def test_an_upgrade_changes_the_pod_and_a_rollback_changes_it_back(
    api: Cluster, namespace: str
) -> None:
    """What the driver is started with follows the release's revision."""

    def pod() -> tuple[str, str]:
        """Its image, and the checksum of its pipeline."""
        (found,) = api.get("statefulset", "-n", namespace)["items"]
        made = found["spec"]["template"]
        notes = made["metadata"]["annotations"]
        return made["spec"]["containers"][0]["image"], notes["checksum/pipeline"]

    def pipeline() -> str:
        found = api.get("configmap", "-n", namespace)["items"]
        (text,) = (
            each["data"]["pipeline.yaml"] for each in found if "pipeline.yaml" in each["data"]
        )
        return str(text)

    helm(api, namespace, "install", "r", CHART, "-f", SMALL)
    before, file = pod(), pipeline()
    helm(api, namespace, "upgrade", "r", CHART, "-f", SMALL, *setting({"image.tag": "next"}))
    assert pod() == ("ikebana:next", before[1])
    helm(api, namespace, "rollback", "r")
    assert pod() == before

    edited = file.replace("outputs: {", "outputs: {again: {from: aircraft, topic: again}, ")
    changed = setting({"pipeline.file": edited})
    helm(api, namespace, "upgrade", "r", CHART, "-f", SMALL, *changed)
    assert (pod()[0], pipeline()) == (before[0], edited)
    assert pod()[1] != before[1]
    helm(api, namespace, "rollback", "r")
    assert (pod(), pipeline()) == (before, file)


def test_the_binary_is_the_kubernetes_that_it_says(control_plane: Path) -> None:
    """What is tested against is named by its version."""
    told = subprocess.run(
        [control_plane, "kubectl", "version", "--client", "-o", "yaml"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"gitVersion: v{tools.KUBERNETES}" in told.stdout


def test_a_misspelt_value_makes_nothing(api: Cluster, namespace: str) -> None:
    """Helm refuses before it asks the API server for anything."""
    tool(tools.helm)
    done = run_helm(
        *("install", "r", CHART, "-f", str(SMALL), "--set", "exectors.count=1"),
        *(f"--kubeconfig={api.kubeconfig}", f"--namespace={namespace}"),
    )
    assert "additional properties 'exectors' not allowed" in done.stderr
    assert api.get("all", "-n", namespace)["items"] == []
