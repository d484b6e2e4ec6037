"""What the chart makes for `ikebana serve`: pods that each hold the whole, and who reads them."""

from pathlib import Path
from typing import Any

import click

from deploy.charts import SERVE, SMALL, Object, kinds, only, rendered, setting, volume
from ikebana.processor.cli.serve import serve_command
from ikebana.serving.arrangement import parsed_retention

NAME = "r-ikebana-serve"
ANYONE = setting({"serve.enabled": True, "serve.anyone": True})


def _pod(found: list[Object]) -> Object:
    spec: Object = only(found, "StatefulSet", NAME)["spec"]["template"]["spec"]
    return spec


def _container(found: list[Object]) -> Object:
    (one,) = _pod(found)["containers"]
    return dict(one)


def _parsed(found: list[Object]) -> dict[str, Any]:
    """The container's arguments as the command reads them."""
    program, command, *arguments = _container(found)["args"]
    assert (program, command) == ("ikebana", "serve")
    with serve_command.make_context("serve", arguments) as context:
        assert isinstance(context, click.Context)
        return context.params


def test_nothing_is_served_unless_asked_for() -> None:
    """A pipeline alone has no pods for readers."""
    names = {each["metadata"]["name"] for each in rendered(SMALL)}
    assert not any("serve" in name for name in names)


def test_the_command_understands_its_arguments() -> None:
    """All that the values say reaches it."""
    given = _parsed(rendered(SERVE))
    assert given["what"] == ("/etc/ikebana/pipeline/pipeline.yaml",)
    assert given["http"] == ("0.0.0.0", 8080)
    assert given["probes"] == ("0.0.0.0", 9404)
    assert given["retain"] == parsed_retention("7d")
    assert given["token_file"] == Path("/etc/ikebana/tokens/tokens.yaml")
    assert given["tls_cert"] == Path("/etc/ikebana/serve-tls/tls.crt")
    assert given["tls_key"] == Path("/etc/ikebana/serve-tls/tls.key")
    assert given["tls_client_ca"] == Path("/etc/ikebana/serve-tls/client-ca.crt")
    assert (given["rate"], given["sql_seconds"], given["sql_memory"]) == (100, 10, 256)
    assert given["anyone"] is False
    least = _parsed(rendered(SMALL, *ANYONE))
    assert least["anyone"] is True
    assert (least["rate"], least["token_file"], least["tls_cert"]) == (None, None, None)


def test_the_files_that_it_is_given_are_mounted() -> None:
    """Secrets by their keys, and not readable by others; settings as the driver has them."""
    found = rendered(SERVE)
    mounts = {each["name"]: each["mountPath"] for each in _container(found)["volumeMounts"]}
    assert mounts["tokens"] == "/etc/ikebana/tokens"
    assert mounts["serve-tls"] == "/etc/ikebana/serve-tls"
    assert mounts["settings"] == "/etc/ikebana/settings"
    assert mounts["pipeline"] == "/etc/ikebana/pipeline"
    assert {"checkpoint", "scratch"}.isdisjoint(mounts)
    tokens = volume(_pod(found), "tokens")["secret"]
    assert (tokens["secretName"], tokens["defaultMode"]) == ("readers", 0o440)
    assert tokens["items"] == [{"key": "tokens.yaml", "path": "tokens.yaml"}]
    paths = {each["path"] for each in volume(_pod(found), "serve-tls")["secret"]["items"]}
    assert paths == {"tls.crt", "tls.key", "client-ca.crt"}
    assert {each["name"] for each in _pod(found)["volumes"]} | {"served"} == set(mounts)


def test_each_pod_has_a_volume_of_its_own() -> None:
    """Which goes with it: a copy can be made again."""
    spec = only(rendered(SERVE), "StatefulSet", NAME)["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenScaled": "Delete",
        "whenDeleted": "Delete",
    }
    assert spec["podManagementPolicy"] == "Parallel"


def test_replicas_are_fixed_or_follow_the_cpu() -> None:
    """Never both, or they would fight."""
    found = rendered(SERVE)
    scaler = only(found, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == NAME
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 4)
    assert "replicas" not in only(found, "StatefulSet", NAME)["spec"]
    fixed = rendered(SMALL, *ANYONE, *setting({"serve.replicas": 3}))
    assert only(fixed, "StatefulSet", NAME)["spec"]["replicas"] == 3
    assert "HorizontalPodAutoscaler" not in kinds(fixed)


def test_probes_have_a_port_of_their_own() -> None:
    """They have neither token nor certificate."""
    container = _container(rendered(SERVE))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"serve": 8080, "probes": 9404}
    asked = {
        name: container[name]["httpGet"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {each["port"] for each in asked.values()} == {"probes"}
    assert asked["livenessProbe"]["path"] == "/live"
    assert asked["readinessProbe"]["path"] == "/ready"


def test_services_select_the_pods_and_no_driver() -> None:
    """Readers get those that are ready; metrics are of each."""
    found = rendered(SERVE)
    labels = only(found, "StatefulSet", NAME)["spec"]["template"]["metadata"]["labels"]
    driver = only(found, "StatefulSet", "r-ikebana")["spec"]["template"]["metadata"]["labels"]
    for name in (NAME, f"{NAME}-pods"):
        selector = only(found, "Service", name)["spec"]["selector"]
        assert selector.items() <= labels.items()
        assert not selector.items() <= driver.items()
    assert only(found, "Service", "r-ikebana")["spec"]["selector"].items() <= driver.items()
    assert only(found, "StatefulSet", NAME)["spec"]["serviceName"] == f"{NAME}-pods"
    monitor = only(found, "ServiceMonitor", NAME)["spec"]
    service = only(found, "Service", f"{NAME}-pods")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= service.items()


def test_readers_and_metrics_are_let_in_by_their_own_rules() -> None:
    """And Kafka is the only place that it speaks to."""
    rules = only(rendered(SERVE), "NetworkPolicy", NAME)["spec"]
    by_port = {rule["ports"][0]["port"]: rule["from"] for rule in rules["ingress"]}
    assert by_port["serve"][0]["namespaceSelector"]["matchLabels"] == {"name": "shops"}
    assert by_port["probes"][0]["namespaceSelector"]["matchLabels"] == {"name": "monitoring"}
    ports = {each["port"] for rule in rules["egress"] for each in rule["ports"]}
    assert ports == {53, 9092, 9093}


def test_evictions_take_one_pod_at_a_time() -> None:
    """Unlike the driver's, this budget blocks nothing."""
    budget = only(rendered(SERVE), "PodDisruptionBudget", NAME)["spec"]
    assert budget["maxUnavailable"] == 1
    off = rendered(SERVE, *setting({"serve.podDisruptionBudget.enabled": False}))
    assert "PodDisruptionBudget" not in kinds(off)


def test_it_is_as_locked_down_as_the_driver() -> None:
    """No token of the cluster, no rights, nothing that can be written but its volume."""
    pod = _pod(rendered(SERVE))
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_settings_of_executors_can_be_read_there() -> None:
    """They name the pod's variables, which it has then, too."""
    options = {"executors.count": 2, "checkpoint.uri": "s3a://b/c"}
    names = {each["name"] for each in _container(rendered(SERVE, *setting(options)))["env"]}
    assert {"POD_NAME", "POD_IP"} <= names
