"""What the chart makes of sinks: a pod for each, which its driver asks, and pipelines in SQL."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy.charts import (
    CHART,
    DELIVER,
    FULL,
    SMALL,
    Object,
    container,
    kinds,
    only,
    rendered,
    run_helm,
    setting,
    settings_of,
    volume,
)
from ikebana.processor.authoring import pipeline
from ikebana.processor.cli.deliver import deliver_command
from ikebana.processor.cli.run import run_command

SHOP, LAKE = "r-ikebana-sink-shop", "r-ikebana-sink-lake-1"
SQL = """\
-- Orders by customer.
CREATE PIPELINE totals WITH (run = (shards = 2));
CREATE SOURCE orders (id BIGINT, amount BIGINT) FROM KAFKA (topic = 'orders');
CREATE VIEW sums AS SELECT id, sum(amount) AS total FROM orders GROUP BY id;
CREATE SINK totals FROM sums INTO KAFKA (topic = 'totals');
CREATE SINK shop FROM totals INTO POSTGRES (connection = 'host=db', key = (id));
"""


def _pod(found: list[Object], name: str) -> Object:
    spec: Object = only(found, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def _container(found: list[Object], name: str = SHOP) -> Object:
    (one,) = _pod(found, name)["containers"]
    return dict(one)


def _parsed(command: click.Command, words: list[str]) -> dict[str, Any]:
    """Arguments as a command reads them."""
    program, name, *arguments = words
    assert (program, name) == ("ikebana", command.name)
    with command.make_context(str(command.name), arguments) as context:
        assert isinstance(context, click.Context)
        return context.params


def _env(container: Object) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_a_pipeline_without_sinks_has_no_pods_for_them() -> None:
    """Nor does its driver ask any."""
    found = rendered(SMALL)
    assert "Deployment" not in kinds(found)
    assert "IKEBANA_SINK_AT" not in _env(container(found))


def test_each_sink_of_the_file_has_a_pod() -> None:
    """Its name is one that Kubernetes allows, and its argument the one of the file."""
    found = rendered(DELIVER)
    names = {each["metadata"]["name"] for each in found if each["kind"] == "Deployment"}
    assert names == {SHOP, LAKE}
    given = _parsed(deliver_command, _container(found, LAKE)["args"])
    assert given["file"] == Path("/etc/ikebana/pipeline/pipeline.yaml")
    assert given["name"] == "Lake_1"
    assert given["http"] == ("0.0.0.0", 9404)
    assert (given["ready_within"], given["once"]) == (120.0, False)


def test_a_sink_is_never_there_twice() -> None:
    """The second would take over, and the first start again and take over in turn."""
    for name in (SHOP, LAKE):
        spec = only(rendered(DELIVER), "Deployment", name)["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    # An eviction costs a sink some seconds, so none is refused.
    assert "PodDisruptionBudget" not in kinds(rendered(DELIVER))


def test_secrets_reach_the_sink_that_they_are_of() -> None:
    """By its environment, and no other pod's."""
    found = rendered(DELIVER)
    secret = {"secretKeyRef": {"name": "shop-db", "key": "password"}}
    assert _env(_container(found))["PGPASSWORD"] == secret
    assert "PGPASSWORD" not in _env(_container(found, LAKE)) | _env(container(found))
    assert _container(found, LAKE)["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert "envFrom" not in _container(found)
    more = setting({"extraEnv": [{"name": "A", "value": "b"}]})
    assert {"A", "PGPASSWORD"} <= _env(_container(rendered(DELIVER, *more))).keys()


def test_resources_are_the_usual_or_its_own() -> None:
    """Those of one sink replace those of all."""
    found = rendered(DELIVER)
    assert _container(found)["resources"]["limits"] == {"memory": "2Gi"}
    assert _container(found, LAKE)["resources"]["limits"] == {"memory": "3Gi"}


def test_probes_and_metrics_have_a_port() -> None:
    """Of the pod, of its service, and of what Prometheus finds."""
    found = rendered(DELIVER)
    made = _container(found)
    assert made["ports"] == [{"name": "probes", "containerPort": 9404}]
    assert made["livenessProbe"]["httpGet"] == {"path": "/live", "port": "probes"}
    assert made["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "probes"}
    labels = only(found, "Deployment", SHOP)["spec"]["template"]["metadata"]["labels"]
    other = only(found, "Deployment", LAKE)["spec"]["template"]["metadata"]["labels"]
    selector = only(found, "Service", SHOP)["spec"]["selector"]
    assert selector.items() <= labels.items()
    assert not selector.items() <= other.items()
    monitor = only(found, "ServiceMonitor", "r-ikebana-sinks")["spec"]["selector"]["matchLabels"]
    for name in (SHOP, LAKE):
        assert monitor.items() <= only(found, "Service", name)["metadata"]["labels"].items()
    options = {"metrics.serviceMonitor.enabled": False, "metrics.podMonitor.enabled": True}
    pods = only(rendered(DELIVER, *setting(options)), "PodMonitor", "r-ikebana-sinks")["spec"]
    assert pods["selector"]["matchLabels"].items() <= labels.items()


def test_the_driver_runs_no_sink_and_asks_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At their services, as `ikebana run` reads it."""
    found = rendered(DELIVER)
    env = _env(container(found))
    for name in ("IKEBANA_DELIVER", "IKEBANA_SINK_AT"):
        monkeypatch.setenv(name, env[name])
    given = _parsed(run_command, container(found)["args"])
    assert given["delivers"] is False
    assert dict(given["sink_at"]) == {
        "Lake_1": f"http://{LAKE}:9404",
        "shop": f"http://{SHOP}:9404",
    }


def test_a_sink_speaks_to_kafka_and_its_target() -> None:
    """And is asked by monitoring and the driver."""
    found = rendered(DELIVER)
    rules = only(found, "NetworkPolicy", SHOP)["spec"]
    ports = {each["port"] for rule in rules["egress"] for each in rule["ports"]}
    assert ports == {53, 9092, 9093, 5432}
    (asked,) = rules["ingress"]
    monitoring, driver = asked["from"]
    assert monitoring["namespaceSelector"]["matchLabels"] == {"name": "monitoring"}
    pod = only(found, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert driver["podSelector"]["matchLabels"].items() <= pod.items()
    driving = only(found, "NetworkPolicy", "r-ikebana")["spec"]["egress"]
    (to_sinks,) = [rule for rule in driving if rule["ports"][0]["port"] == 9404]
    labels = only(found, "Deployment", SHOP)["spec"]["template"]["metadata"]["labels"]
    (peer,) = to_sinks["to"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_sink_is_as_locked_down_as_the_driver() -> None:
    """No token of the cluster, and nothing that can be written but what is temporary."""
    found = rendered(DELIVER)
    pod = _pod(found, SHOP)
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "writer"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert _container(found)["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {each["name"]: each["mountPath"] for each in _container(found)["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["volumes"]}
    assert mounts["tmp"] == "/tmp"
    assert volume(pod, "tmp")["emptyDir"] == {}
    assert {"checkpoint", "scratch"}.isdisjoint(mounts)


def test_sinks_of_a_pipeline_in_python_are_settings() -> None:
    """Which driver and sinks read from the file of settings."""
    sink = {"parquet": {"folder": "/lake"}, "tables": {"t": {"from": "o", "mode": "changes"}}}
    options = {
        "pipeline": {"file": "", "module": "shop:pipeline"},
        "settings.deliver": {"lake": sink},
    }
    found = rendered(SMALL, *setting(options))
    assert settings_of(found)["deliver"] == {"lake": sink}
    given = _parsed(deliver_command, _container(found, "r-ikebana-sink-lake")["args"])
    assert (given["file"], given["name"]) == (Path("shop:pipeline"), "lake")
    assert "deliver" not in settings_of(rendered(SMALL))


def test_a_pipeline_in_sql_is_mounted_as_one(tmp_path: Path) -> None:
    """By its ending, by which ikebana tells it; its sinks are named in the values."""
    options = {"pipeline.file": SQL, "deliver.sinks": {"shop": {}}}
    found = rendered(SMALL, *setting(options))
    data = only(found, "ConfigMap", "r-ikebana-pipeline")["data"]
    assert data == {"pipeline.sql": SQL}
    assert container(found)["args"][2] == "/etc/ikebana/pipeline/pipeline.sql"
    assert _container(found)["args"][2:4] == ["/etc/ikebana/pipeline/pipeline.sql", "shop"]
    # It is one that ikebana reads, with the settings of the chart.
    file, over = tmp_path / "pipeline.sql", tmp_path / "settings.yaml"
    file.write_text(data["pipeline.sql"])
    over.write_text(yaml.safe_dump(settings_of(found)))
    read = pipeline.read(file, environ={"IKEBANA_SETTINGS": str(over)})
    assert (read.plan.name, read.settings.shards) == ("totals", 2)
    assert list(read.settings.deliver) == ["shop"]


def test_a_pipeline_in_sql_is_named_in_the_notes_and_to_strimzi() -> None:
    """By its CREATE PIPELINE; its topics have to be told."""
    options = {
        "pipeline.file": SQL,
        "strimzi.acls": {"read": ["orders"], "write": ["totals"]},
        "strimzi.topics": [],
    }
    acls = only(rendered(FULL, *setting(options)), "KafkaUser")["spec"]["authorization"]["acls"]
    names = {each["resource"]["name"] for each in acls}
    assert {"orders", "totals", "totals.progress", "totals.errors", "totals.commits"} <= names
    done = run_helm(
        *("install", "r", CHART, "--namespace", "here", "-f", SMALL),
        *setting({"pipeline.file": SQL, "deliver.sinks": {"shop": {}}}),
        *("--dry-run=client", "--hide-secret"),
    )
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "runs pipeline totals in one pod" in notes
    assert f"logs deployment/{SHOP} -f" in notes


@pytest.mark.parametrize(
    ("values", "options", "told"),
    [
        pytest.param(
            SMALL,
            {"pipeline.file": SQL, "pipeline.key": "pipeline.yaml"},
            "pipeline.key: is pipeline.yaml, and pipeline.file is in SQL",
            id="SQL with another ending",
        ),
        pytest.param(
            SMALL,
            {"pipeline.key": "pipeline.sql"},
            "pipeline.key: is pipeline.sql, and pipeline.file is not in SQL",
            id="YAML that would be taken for SQL",
        ),
        pytest.param(
            FULL,
            {"pipeline.file": SQL},
            "strimzi.acls: read and write are missing",
            id="topics in SQL",
        ),
        pytest.param(
            SMALL,
            {
                "pipeline.file": SQL.replace(
                    "shards = 2", "shards = 2), kafka = (sasl.password = 'x'"
                )
            },
            "pipeline.file: has the secret sasl.password",
            id="a secret in SQL",
        ),
        pytest.param(
            SMALL,
            {"pipeline.file": SQL.replace("host=db", "host=db password=x")},
            "pipeline.file: has a sink's password",
            id="a sink's password in SQL",
        ),
        pytest.param(
            DELIVER,
            {"settings.deliver": {"shop": {"postgres": {"connection": "postgres://u:p@db/s"}}}},
            "settings.deliver.shop.postgres.connection: has a password",
            id="a sink's password",
        ),
        pytest.param(
            DELIVER,
            {"deliver.sinks.shop.egress": []},
            "deliver.sinks.shop.egress: is missing",
            id="a target that is not reached",
        ),
        pytest.param(
            DELIVER,
            {"deliver.sinks": {"shops": {}}},
            "deliver.sinks.shops: neither pipeline.file nor settings.deliver has this sink",
            id="a misspelt sink",
        ),
        pytest.param(
            DELIVER,
            {"deliver.enabled": False},
            "deliver.sinks.shop: is of no use while deliver.enabled is false",
            id="sinks that nobody runs",
        ),
        pytest.param(
            SMALL,
            {"pipeline.file": SQL, "deliver.sinks": {"a_b": {}, "a-b": {}}},
            "has the resources of the sink a-b",
            id="two sinks of one name",
        ),
        pytest.param(
            DELIVER, {"deliver.sinks.shop.image": "x"}, "at '/deliver/sinks/shop'", id="no value"
        ),
    ],
)
def test_values_at_odds(values: Path, options: dict[str, object], told: str) -> None:
    """They are told by their names, with what to do."""
    done = run_helm("template", "r", CHART, "-f", values, *setting(options))
    assert done.returncode != 0
    assert told in done.stderr


def test_a_variable_in_place_of_a_password_is_none() -> None:
    """In YAML and in SQL."""
    in_sql = SQL.replace("host=db", "host=db password=${PGPASSWORD}")
    for text in (
        in_sql,
        json.dumps(
            {
                "pipeline": "p",
                "deliver": {"s": {"postgres": {"connection": "postgres://u:${PGPASSWORD}@db/s"}}},
            }
        ),
    ):
        done = run_helm("template", "r", CHART, "-f", SMALL, *setting({"pipeline.file": text}))
        assert done.returncode == 0, done.stderr
