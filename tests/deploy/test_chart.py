"""What the chart makes of its values: every branch of every template but the pods'."""

from pathlib import Path

import pytest
import yaml

from deploy.charts import (
    CHART,
    DELIVER,
    FULL,
    OPERATOR,
    ROOT,
    SERVE,
    SMALL,
    Object,
    container,
    driver,
    executor_template,
    kinds,
    only,
    rendered,
    run_helm,
    setting,
    settings_of,
    volume,
)


@pytest.mark.parametrize(
    "values", [SMALL, FULL, OPERATOR, SERVE, DELIVER], ids=lambda path: path.stem
)
def test_lint(values: object) -> None:
    """Helm finds no fault with the chart, whatever is on."""
    done = run_helm("lint", "--strict", CHART, "-f", str(values))
    assert done.returncode == 0, done.stdout


def test_the_least_is_one_pod_and_a_volume() -> None:
    """By default all work is done in the driver's pod, which needs no rights at all."""
    found = rendered(SMALL)
    assert kinds(found) == {
        "ConfigMap",
        "PersistentVolumeClaim",
        "Pod",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    }
    assert driver(found)["automountServiceAccountToken"] is False
    assert settings_of(found)["run"]["master"] == "local[2]"
    assert settings_of(found)["spark"] == {}
    assert only(found, "StatefulSet")["spec"]["replicas"] == 1
    (test,) = [each for each in found if each["kind"] == "Pod"]
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_the_pipeline_file_is_kept_as_it_is() -> None:
    """Its text is not read and written again: the order of its parts is part of the plan."""
    text = "pipeline: p\n# why\nzebra: 1\napple: ${A:-b}\nkafka: {bootstrap.servers: k:1}\n"
    found = rendered(SMALL, *setting({"pipeline.file": text, "pipeline.key": "p.yaml"}))
    assert only(found, "ConfigMap", "r-ikebana-pipeline")["data"]["p.yaml"] == text
    assert container(found)["args"][2] == "/etc/ikebana/pipeline/p.yaml"


def test_an_existing_pipeline_is_used() -> None:
    """Then the chart makes no ConfigMap of it, and mounts that one."""
    found = rendered(SMALL, *setting({"pipeline.file": "", "pipeline.existingConfigMap": "mine"}))
    assert [each["metadata"]["name"] for each in found if each["kind"] == "ConfigMap"] == [
        "r-ikebana-settings"
    ]
    assert volume(driver(found), "pipeline")["configMap"]["name"] == "mine"


def test_a_pipeline_in_python_is_named_and_no_file_is_mounted() -> None:
    """Its module is in the image, or in a volume that PYTHONPATH names."""
    given = {"pipeline.file": "", "pipeline.module": "shop.orders:pipeline"}
    found = rendered(SMALL, *setting({**given, "preflight.enabled": True}))
    assert container(found)["args"][:3] == ["ikebana", "run", "shop.orders:pipeline"]
    (preflight,) = driver(found)["initContainers"]
    assert preflight["args"] == ["ikebana", "preflight", "shop.orders:pipeline"]
    assert "pipeline" not in {each["name"] for each in driver(found)["volumes"]}
    assert "pipeline" not in {each["name"] for each in container(found)["volumeMounts"]}
    assert "r-ikebana-pipeline" not in {each["metadata"]["name"] for each in found}


def test_a_changed_pipeline_or_setting_restarts_the_driver() -> None:
    """Both are in the pod's annotations as checksums."""

    def sums(*options: str) -> tuple[str, str]:
        notes = only(rendered(SMALL, *options), "StatefulSet")["spec"]["template"]["metadata"]
        return notes["annotations"]["checksum/pipeline"], notes["annotations"]["checksum/settings"]

    pipeline, settings = sums()
    assert sums(*setting({"kafka.bootstrapServers": "other:1"})) != (pipeline, settings)
    assert sums(*setting({"pipeline.file": "a: b"}))[0] != pipeline
    assert sums(*setting({"http.readyWithin": 5})) == (pipeline, settings)


@pytest.mark.parametrize("values", [FULL, OPERATOR], ids=lambda path: path.stem)
def test_rights_are_in_the_namespace_and_few(values: object) -> None:
    """The driver may make pods and ConfigMaps; nothing else unless the operator's way needs it."""
    found = rendered(values)  # type: ignore[arg-type]
    assert "ClusterRole" not in kinds(found)
    allowed = {name for rule in only(found, "Role")["rules"] for name in rule["resources"]}
    more = {"services", "persistentvolumeclaims"} if values == OPERATOR else set()
    assert allowed == {"pods", "configmaps"} | more
    (subject,) = only(found, "RoleBinding")["subjects"]
    assert subject["name"] in ("orders", "r-ikebana")


def test_rights_can_be_left_to_others() -> None:
    """Accounts and roles that exist are used by name."""
    options = {
        "rbac.create": False,
        "serviceAccount.create": False,
        "serviceAccount.name": "mine",
        "executorServiceAccount.create": False,
    }
    found = rendered(FULL, *setting(options))
    assert not kinds(found) & {"Role", "RoleBinding", "ServiceAccount"}
    assert driver(found)["serviceAccountName"] == "mine"
    spark = settings_of(found)["spark"]
    assert spark["spark.kubernetes.authenticate.executor.serviceAccountName"] == "default"


@pytest.mark.parametrize(
    ("options", "annotations", "storage_class"),
    [
        pytest.param({}, {"helm.sh/resource-policy": "keep"}, None, id="default"),
        pytest.param({"checkpoint.volume.keep": False}, None, None, id="not kept"),
        pytest.param(
            {"checkpoint.volume.storageClass": "-"},
            {"helm.sh/resource-policy": "keep"},
            "",
            id="no class",
        ),
        pytest.param(
            {"checkpoint.volume.storageClass": "fast"},
            {"helm.sh/resource-policy": "keep"},
            "fast",
            id="class",
        ),
    ],
)
def test_the_claim(
    options: dict[str, object], annotations: Object | None, storage_class: str | None
) -> None:
    """It outlives the release unless told not to, and names its class, or none, or the default."""
    claim = only(rendered(SMALL, *setting(options)), "PersistentVolumeClaim")
    assert claim["metadata"].get("annotations") == annotations
    assert claim["spec"].get("storageClassName") == storage_class


def test_policies() -> None:
    """Driver and executors speak to each other, to Kafka, and the driver to the API server."""
    found = rendered(FULL)
    driving = only(found, "NetworkPolicy", "orders")["spec"]
    executing = only(found, "NetworkPolicy", "orders-executor")["spec"]
    ports = [port["port"] for rule in driving["egress"] for port in rule["ports"]]
    assert {53, 9092, 9093, 443, 6443, 7079, 7080, 8081} == set(ports)
    assert {port["port"] for rule in executing["egress"] for port in rule["ports"]} == {
        *(53, 9092, 9093, 7078, 7079, 7080, 8081)
    }
    # Of each of four cores two processes hold shards, and one reads.
    first = settings_of(found)["spark"]["spark.executorEnv.IKEBANA_PORT"]
    owners = {"port": int(first), "endPort": int(first) + 3 * 4 - 1, "protocol": "TCP"}
    for rules in (driving["egress"], executing["egress"], executing["ingress"]):
        assert owners in [port for rule in rules for port in rule["ports"]]
    monitoring, test = driving["ingress"][0]["from"]
    assert monitoring == {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    (pod,) = [each for each in found if each["kind"] == "Pod"]
    allowed = test["podSelector"]["matchLabels"].items()
    assert allowed <= pod["metadata"]["labels"].items()
    untested = rendered(FULL, *setting({"tests.enabled": False}))
    assert only(untested, "NetworkPolicy", "orders")["spec"]["ingress"][0]["from"] == [monitoring]
    alone = rendered(SMALL, *setting({"networkPolicy.enabled": True}))
    policy = only(alone, "NetworkPolicy")["spec"]
    assert "from" not in policy["ingress"][0]
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {
        *(53, 9092, 9093)
    }


def test_the_number_of_executors_has_bounds() -> None:
    """The run asks for more than it begins with, if it may; Spark does not by itself."""
    found = settings_of(rendered(FULL))
    assert found["spark"]["spark.executor.instances"] == "3"
    assert found["run"]["max_executors"] == 8
    assert "max_executors" not in settings_of(rendered(OPERATOR))["run"]
    with (ROOT / "deploy" / "spark-defaults.conf").open() as lines:
        defaults = dict(line.split(maxsplit=1) for line in lines if line.startswith("spark."))
    assert defaults["spark.dynamicAllocation.enabled"].strip() == "false"


def test_monitors_and_budget() -> None:
    """Prometheus asks the service or the pod, never both; the budget allows no eviction."""
    found = rendered(FULL)
    monitor = only(found, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [
        {"port": "http", "path": "/metrics", "interval": "30s"}
    ]
    service = only(found, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= (
        service["metadata"]["labels"].items()
    )
    assert "PodMonitor" not in kinds(found)
    assert "PodMonitor" in kinds(rendered(OPERATOR))
    assert only(found, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 0


@pytest.mark.parametrize(
    ("values", "kind", "part"),
    [(FULL, "ServiceMonitor", "endpoints"), (OPERATOR, "PodMonitor", "podMetricsEndpoints")],
    ids=["service", "pod"],
)
def test_sparks_own_metrics_are_scraped_if_its_ui_is_on(
    values: Path, kind: str, part: str
) -> None:
    """They are on the same port, below another path, and 404 without the UI."""
    options = setting({"settings.spark": {"spark.ui.enabled": "true"}})
    asked = only(rendered(values, *options), kind)["spec"][part]
    assert [each["path"] for each in asked] == ["/metrics", "/metrics/spark"]
    assert [each["path"] for each in only(rendered(values), kind)["spec"][part]] == ["/metrics"]


@pytest.mark.parametrize(
    ("value", "file", "kind", "key"),
    [
        ("metrics.prometheusRule.enabled", "alerts/ikebana.rules.yaml", "PrometheusRule", None),
        ("metrics.dashboard.enabled", "dashboards/ikebana.json", "ConfigMap", "ikebana.json"),
    ],
)
def test_alerts_and_dashboard(value: str, file: str, kind: str, key: str | None) -> None:
    """They are made of their files; without one there is nothing to make."""
    found = rendered(SMALL, *setting({value: True}))
    made = [
        each for each in found if each["kind"] == kind and (key is None or key in each["data"])
    ]
    assert len(made) == (CHART / file).exists()
    for each in made:
        text = (CHART / file).read_text()
        assert each["spec"] == yaml.safe_load(text) if key is None else each["data"][key] == text


def test_labels_and_annotations_of_everything() -> None:
    """Common ones are on every object and every pod."""
    found = rendered(FULL)
    for each in found:
        assert each["metadata"]["labels"]["team"] == "supply", each["kind"]
        assert each["metadata"]["annotations"]["owner"] == "supply@example.org", each["kind"]
    pod = only(found, "StatefulSet")["spec"]["template"]["metadata"]
    assert pod["labels"]["team"] == pod["labels"]["team"] == "supply"
    assert pod["annotations"]["owner"] == "supply@example.org"
    executor = executor_template(found)["metadata"]
    assert executor["labels"] | {"team": "supply", "tier": "stream"} == executor["labels"]
    assert executor["annotations"] == {"note": "executor", "owner": "supply@example.org"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        pytest.param({}, "r-ikebana", id="release and chart"),
        pytest.param({"nameOverride": "r"}, "r", id="release has it"),
        pytest.param({"fullnameOverride": "x" * 60}, "x" * 50, id="too long"),
    ],
)
def test_names(options: dict[str, object], name: str) -> None:
    """Short enough for what Kubernetes makes of them."""
    assert only(rendered(SMALL, *setting(options)), "StatefulSet")["metadata"]["name"] == name


def test_the_operators_application() -> None:
    """Instead of the StatefulSet, of the same values; Spark's way of making pods is left alone."""
    found = rendered(OPERATOR)
    assert "StatefulSet" not in kinds(found)
    made = only(found, "SparkApplication")["spec"]
    assert made["executor"]["instances"] == 2
    assert made["executor"]["coreRequest"] == "1"
    assert made["driver"]["serviceAccount"] == "r-ikebana"
    template = made["driver"]["template"]["spec"]
    assert volume(template, "pipeline")["configMap"]["name"] == "orders"
    assert template["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/live"
    assert made["executor"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert settings_of(found)["spark"] == {}
    assert settings_of(found)["run"]["checkpoint"] == "s3a://state/orders"
    more = setting({"executors.limitCores": "2", "image.pullSecrets": ["p"]})
    bound = only(rendered(OPERATOR, *more), "SparkApplication")["spec"]
    assert (bound["executor"]["coreLimit"], bound["imagePullSecrets"]) == ("2", ["p"])


def test_strimzi() -> None:
    """The user may read what the pipeline reads and write what it writes, and no more."""
    found = rendered(FULL)
    topic = only(found, "KafkaTopic")
    assert topic["metadata"]["name"] == "flights-new"
    assert topic["spec"]["topicName"] == "Flights_new"
    assert topic["apiVersion"] == "kafka.strimzi.io/v1"
    acls = only(found, "KafkaUser")["spec"]["authorization"]["acls"]
    writable = {each["resource"]["name"] for each in acls if "Write" in each["operations"]}
    assert writable == {
        *("whereabouts", "whereabouts.progress", "newest", "newest.progress"),
        *("whereabouts.errors", "whereabouts.errors.progress", "ikebana-"),
        *("whereabouts.commits", "whereabouts.exchange"),
    }
    readable = {each["resource"]["name"] for each in acls if each["operations"][-1] == "Read"}
    snapshots = {f"{name}.snapshot" for name in ("whereabouts", "newest", "whereabouts.errors")}
    assert readable == {"flights", "more-flights", "events", *snapshots}
    told = only(rendered(OPERATOR), "KafkaUser")
    assert told["apiVersion"] == "kafka.strimzi.io/v1"
    assert told["spec"]["authentication"] == {"type": "tls"}
    older = ("--api-versions", "kafka.strimzi.io/v1beta2")
    both = (*older, "--api-versions", "kafka.strimzi.io/v1")
    for known, version in ((older, "v1beta2"), (both, "v1")):
        user = only(rendered(FULL, *known), "KafkaUser")
        assert user["apiVersion"] == f"kafka.strimzi.io/{version}"
    none = rendered(FULL, *setting({"strimzi.user.create": False}))
    assert "KafkaUser" not in kinds(none)


@pytest.mark.parametrize(
    ("source", "topics"),
    [
        pytest.param("{topic: a, format: diff}", {"a", "a.progress", "a.snapshot"}, id="updates"),
        pytest.param("{topic: a, format: {key: bytes}}", {"a"}, id="format of keys alone"),
        pytest.param(
            "{topic: [a, b], format: {value: diff}}",
            {"a", "b", "a.progress", "b.progress", "a.snapshot", "b.snapshot"},
            id="updates of two topics",
        ),
        pytest.param(
            "{topic: a, event_time: {clock: transaction, transactions: t}}",
            {"a", "t"},
            id="transactions",
        ),
    ],
)
def test_the_user_may_read_what_comes_with_an_input(source: str, topics: set[str]) -> None:
    """Progress and snapshots of a topic of updates, and the source's topic of transactions."""
    text = f"{{pipeline: p, inputs: {{i: {source}}}, outputs: {{o: {{topic: o}}}}}}"
    user = only(rendered(FULL, *setting({"pipeline.file": text})), "KafkaUser")
    acls = user["spec"]["authorization"]["acls"]
    read = {each["resource"]["name"] for each in acls if each["operations"][-1] == "Read"}
    assert read - {"o.snapshot", "p.errors.snapshot"} == topics


def test_the_test_pod_can_be_left_out() -> None:
    """`helm test` has nothing to do then."""
    assert "Pod" not in kinds(rendered(SMALL, *setting({"tests.enabled": False})))


@pytest.mark.parametrize(
    ("values", "options", "told"),
    [
        pytest.param(
            SMALL, {}, ["in one pod", "logs r-ikebana-0 -f", "helm -n here test r"], id="small"
        ),
        pytest.param(FULL, {}, ["on 3 to 8 executors", "component=executor"], id="executors"),
        pytest.param(
            OPERATOR, {}, ["get sparkapplication r-ikebana", "ConfigMap orders"], id="operator"
        ),
        pytest.param(
            SMALL,
            {"pipeline.file": "", "pipeline.module": "shop:pipeline"},
            ["runs pipeline shop:pipeline in one pod"],
            id="a module",
        ),
    ],
)
def test_notes_say_where_to_look(
    values: object, options: dict[str, object], told: list[str]
) -> None:
    """The notes name this release's own objects."""
    done = run_helm(
        *("install", "r", CHART, "--namespace", "here", "-f", str(values)),
        *setting(options),
        *("--dry-run=client", "--hide-secret"),
    )
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert [part for part in told if part not in notes] == []
