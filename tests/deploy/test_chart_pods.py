"""The pods that the chart makes, and what is said to Kafka and Spark in them."""

import pytest

from deploy.charts import (
    FULL,
    SMALL,
    Object,
    container,
    driver,
    executor_template,
    kinds,
    only,
    rendered,
    setting,
    settings_of,
    volume,
)


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"kafka.tls.enabled": True}, "SSL", id="tls"),
        pytest.param(
            {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.existingSecret": "s"},
            "SASL_PLAINTEXT",
            id="sasl",
        ),
        pytest.param(
            {
                "kafka.tls.enabled": True,
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.settingsFrom": {
                    "sasl.oauthbearer.client.secret": {"secret": "o", "key": "k"}
                },
            },
            "SASL_SSL",
            id="both",
        ),
    ],
)
def test_the_protocol_follows(options: dict[str, object], protocol: str | None) -> None:
    """What Kafka is spoken to in follows from SASL and TLS."""
    found = settings_of(rendered(SMALL, *setting(options)))
    assert found["kafka"].get("security.protocol") == protocol


def test_secrets_are_files() -> None:
    """No secret is in a ConfigMap or in the environment: settings name the files."""
    found = rendered(FULL)
    kafka = settings_of(found)["kafka"]
    assert kafka["sasl.username"] == "${file:/etc/ikebana/secrets/sasl/username}"
    assert kafka["sasl.password"] == "${file:/etc/ikebana/secrets/sasl/password}"
    assert kafka["ssl.key.password"] == "${file:/etc/ikebana/secrets/kafka/ssl.key.password}"
    assert kafka["ssl.ca.location"] == "/etc/ikebana/tls/ca.crt"
    registry = settings_of(found)["registry"]
    assert registry["basic.auth.user.info"].startswith("${file:/etc/ikebana/secrets/registry/")
    sources = volume(driver(found), "secrets")["projected"]["sources"]
    assert {
        (each["secret"]["name"], item["key"], item["path"])
        for each in sources
        for item in each["secret"]["items"]
    } == {
        ("orders-user", "username", "sasl/username"),
        ("orders-user", "password", "sasl/password"),
        ("kafka-key", "word", "kafka/ssl.key.password"),
        ("registry-user", "info", "registry/basic.auth.user.info"),
    }


def test_a_user_name_need_not_be_secret() -> None:
    """A name that is given is used, and the secret, as Strimzi makes it, has none."""
    found = rendered(FULL, *setting({"kafka.sasl.username": "orders"}))
    assert settings_of(found)["kafka"]["sasl.username"] == "orders"
    paths = [
        item["path"]
        for each in volume(driver(found), "secrets")["projected"]["sources"]
        for item in each["secret"]["items"]
    ]
    assert "sasl/username" not in paths


def test_executors_get_certificates_and_no_passwords() -> None:
    """They open certificates themselves; what else is secret comes from the driver."""
    pod = executor_template(rendered(FULL))["spec"]
    assert "secrets" not in [each["name"] for each in pod["volumes"]]
    paths = {
        item["path"]
        for each in volume(pod, "tls")["projected"]["sources"]
        for item in each["secret"]["items"]
    }
    assert paths == {"ca.crt", "client.crt", "client.key"}
    assert pod["automountServiceAccountToken"] is False


def test_executors_are_asked_for_as_they_are_described() -> None:
    """Count, sizes, image and accounts reach Spark; ports are fixed, for the policies."""
    spark = settings_of(rendered(FULL))["spark"]
    assert spark["spark.executor.instances"] == "3"
    assert spark["spark.executor.memoryOverhead"] == "6g"
    assert spark["spark.kubernetes.executor.request.cores"] == "2"
    assert spark["spark.kubernetes.executor.limit.cores"] == "4"
    assert spark["spark.kubernetes.container.image"].startswith("registry.example.org/ikebana@sha")
    assert spark["spark.kubernetes.container.image.pullSecrets"] == "registry"
    assert spark["spark.kubernetes.authenticate.executor.serviceAccountName"] == "orders-executor"
    assert spark["spark.driver.port"] == "7078"
    assert spark["spark.network.timeout"] == "60s"
    assert spark["spark.kubernetes.namespace"] == "here"


def test_cores_need_not_be_requested() -> None:
    """Without a request or a limit Spark asks for whole cores."""
    options = {"executors.count": 1, "checkpoint.uri": "s3a://b/x"}
    spark = settings_of(rendered(SMALL, *setting(options)))["spark"]
    assert not [name for name in spark if name.endswith(("request.cores", "limit.cores"))]


@pytest.mark.parametrize("pod", ["driver", "executor", "test"])
def test_pods_keep_the_restricted_standard(pod: str) -> None:
    """Pod Security "restricted", and a read-only root, for every pod that is made."""
    found = rendered(FULL)
    specs: dict[str, Object] = {
        "driver": driver(found),
        "executor": executor_template(found)["spec"],
        "test": only(found, "Pod")["spec"],
    }
    spec = specs[pod]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = [each for each in spec["containers"] if "ikebana" in each["image"]]
    assert own
    for each in own:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_where_pods_may_run() -> None:
    """Node, taint, affinity, spread and priority are the driver's and the executors' own."""
    found = rendered(FULL)
    for pod in (driver(found), executor_template(found)["spec"]):
        assert pod["nodeSelector"] == {"disk": "fast"}
        assert pod["tolerations"] == [{"key": "stream", "operator": "Exists"}]
        assert pod["topologySpreadConstraints"][0]["maxSkew"] == 1
        assert pod["priorityClassName"] == "stream"
        assert pod["hostAliases"] == [{"ip": "10.0.0.1", "hostnames": ["kafka-a"]}]
    assert "nodeAffinity" in driver(found)["affinity"]
    assert "podAntiAffinity" in executor_template(found)["spec"]["affinity"]


def test_extra_environment_and_volumes_reach_both() -> None:
    """Functions of a pipeline, say, are needed wherever tasks run."""
    found = rendered(FULL)
    for each in (container(found), executor_template(found)["spec"]["containers"][0]):
        assert "PASSWORD" in [one["name"] for one in each["env"]]
        assert each["envFrom"] == [{"configMapRef": {"name": "shared"}}]
        assert "/opt/functions" in [one["mountPath"] for one in each["volumeMounts"]]
    assert [each["name"] for each in driver(found)["containers"]] == ["driver", "side"]
    assert [each["name"] for each in driver(found)["initContainers"]] == ["preflight", "first"]


def test_probes_ask_for_progress() -> None:
    """Start-up allows for catching up; liveness asks /live, readiness /ready, on one port."""
    found = rendered(SMALL, *setting({"http.port": 9000, "http.readyWithin": 7}))
    driving = container(found)
    assert driving["startupProbe"]["httpGet"] == {"path": "/live", "port": "http"}
    assert driving["livenessProbe"]["httpGet"] == {"path": "/live", "port": "http"}
    assert driving["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert driving["ports"] == [{"name": "http", "containerPort": 9000}]
    assert {"name": "IKEBANA_PROBES", "value": "0.0.0.0:9000"} in driving["env"]
    assert driving["args"][-1] == "--ready-within=7"
    allowed = driving["startupProbe"]
    # Also for an edit: what is on its way is finished first, and the state rewritten for shards.
    assert allowed["periodSeconds"] * allowed["failureThreshold"] >= 3600


def test_another_pipeline_replaces_the_pod_and_nothing_else() -> None:
    """An edit keeps names, claims and selectors, and the file of before makes what there was."""
    before = rendered(SMALL)
    text = only(before, "ConfigMap", "r-ikebana-pipeline")["data"]["pipeline.yaml"]
    edited = text.replace("outputs: {", "outputs: {again: {from: aircraft, topic: again}, ")
    assert edited != text

    after = rendered(SMALL, *setting({"pipeline.file": edited}))

    assert only(after, "ConfigMap", "r-ikebana-pipeline")["data"]["pipeline.yaml"] == edited
    pods = [only(found, "StatefulSet")["spec"]["template"] for found in (before, after)]
    sums = [pod["metadata"]["annotations"].pop("checksum/pipeline") for pod in pods]
    assert sums[0] != sums[1]
    only(after, "ConfigMap", "r-ikebana-pipeline")["data"]["pipeline.yaml"] = text
    assert after == before
    assert rendered(SMALL, *setting({"pipeline.file": text})) == rendered(SMALL)


def test_stopping_has_time() -> None:
    """Time to end a micro-batch, or an executor's tasks, and hooks, are the user's to give."""
    given = {"driver.terminationGracePeriodSeconds": 300}
    found = rendered(FULL, *setting({**given, "executors.terminationGracePeriodSeconds": 90}))
    assert executor_template(found)["spec"]["terminationGracePeriodSeconds"] == 90
    assert driver(found)["terminationGracePeriodSeconds"] == 300
    assert container(found)["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "1"]}}}


@pytest.mark.parametrize(
    ("options", "claim"),
    [
        pytest.param({}, "r-ikebana-checkpoint", id="made"),
        pytest.param({"checkpoint.volume.existingClaim": "mine"}, "mine", id="existing"),
        pytest.param({"checkpoint.uri": "s3a://b/x"}, None, id="object store"),
    ],
)
def test_where_the_checkpoint_is(options: dict[str, object], claim: str | None) -> None:
    """On a claim that is made or exists, or in an object store."""
    found = rendered(SMALL, *setting(options))
    assert ("PersistentVolumeClaim" in kinds(found)) == (options == {})
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in driver(found)["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == ([claim] if claim else [])
    where = settings_of(found)["run"]["checkpoint"]
    assert where == ("/var/lib/ikebana/checkpoint/checkpoint" if claim else "s3a://b/x")


@pytest.mark.parametrize(
    ("options", "image"),
    [
        pytest.param({}, "ikebana:0.1.0", id="the chart's"),
        pytest.param({"image.tag": "x"}, "ikebana:x", id="tag"),
        pytest.param(
            {"image.tag": "x", "image.digest": "sha256:" + "a" * 64},
            "ikebana@sha256:" + "a" * 64,
            id="digest",
        ),
    ],
)
def test_the_image(options: dict[str, object], image: str) -> None:
    """A digest wins over a tag, a tag over the chart's version."""
    assert container(rendered(SMALL, *setting(options)))["image"] == image
