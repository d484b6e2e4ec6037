"""Wrong values are refused before anything is made, by their names."""

from pathlib import Path

import pytest
import yaml

from deploy.charts import CHART, FULL, OPERATOR, SMALL, run_helm, setting

WRONG = sorted((Path(__file__).parent / "wrong_values").glob("*.yaml"))


@pytest.mark.parametrize("values", WRONG, ids=lambda path: path.stem)
def test_wrong_values_are_refused(values: Path) -> None:
    """Each file says in its first line which value is to be named."""
    wanted = values.read_text().splitlines()[0].removeprefix("# ")
    done = run_helm("template", "r", CHART, "-f", SMALL, "-f", values)
    assert done.returncode != 0
    assert wanted in done.stderr


@pytest.mark.parametrize(
    ("values", "options", "told"),
    [
        pytest.param(SMALL, {"pipeline.file": ""}, "pipeline.file: is missing", id="no pipeline"),
        pytest.param(
            SMALL, {"pipeline.file": "a: [b"}, "pipeline.file: is not YAML", id="not YAML"
        ),
        pytest.param(
            SMALL,
            {"pipeline.existingConfigMap": "x"},
            "pipeline.existingConfigMap: there is pipeline.file",
            id="two pipelines",
        ),
        pytest.param(
            SMALL,
            {"pipeline.module": "shop:pipeline"},
            "pipeline.module: there is a pipeline file as well",
            id="a module and a file",
        ),
        pytest.param(
            SMALL,
            {"pipeline.file": "", "pipeline.module": "shop.py"},
            "at '/pipeline/module'",
            id="no module",
        ),
        pytest.param(
            SMALL,
            {"serve.enabled": True},
            "serve.tokens.secret: is missing; give it, serve.tls.clientCaKey, or serve.anyone",
            id="served to everybody by mistake",
        ),
        pytest.param(
            SMALL,
            {"serve.enabled": True, "serve.anyone": True, "serve.tokens.secret": "readers"},
            "serve.anyone: there are serve.tokens.secret",
            id="tokens and everybody",
        ),
        pytest.param(
            SMALL,
            {"serve.enabled": True, "serve.tls.clientCaKey": "ca.crt"},
            "serve.tls.secret: is missing",
            id="an authority without a certificate",
        ),
        pytest.param(
            SMALL,
            {"serve.enabled": True, "serve.anyone": True, "serve.probesPort": 8080},
            "serve.probesPort: is the port of reads",
            id="one port for two",
        ),
        pytest.param(
            SMALL,
            {
                "serve.enabled": True,
                "serve.anyone": True,
                "serve.autoscaling": {"enabled": True, "minReplicas": 9},
            },
            "serve.autoscaling.minReplicas: is more than",
            id="more replicas than most",
        ),
        pytest.param(
            SMALL,
            {"console.anyone": True, "console.tokens.secret": "readers"},
            "console.anyone: there are console.tokens.secret",
            id="tokens and everybody at the console",
        ),
        pytest.param(
            SMALL,
            {"console.tls.clientCaKey": "ca.crt"},
            "console.tls.secret: is missing",
            id="the console's authority without a certificate",
        ),
        pytest.param(
            SMALL,
            {"console.port": 9404},
            "console.port: is the port of metrics",
            id="one port for console and probes",
        ),
        pytest.param(
            SMALL, {"serve.retain": "long"}, "at '/serve/retain'", id="no length of history"
        ),
        pytest.param(
            SMALL,
            {"kafka.bootstrapServers": ""},
            "kafka.bootstrapServers: is missing",
            id="no brokers",
        ),
        pytest.param(
            SMALL,
            {"registry.settings": {"basic.auth.user.info": "u:p"}},
            "registry.settings.basic.auth.user.info: is a secret",
            id="a registry's secret",
        ),
        pytest.param(
            FULL,
            {"kafka.settings": {"security.protocol": "SSL"}},
            "kafka.settings.security.protocol: follows from",
            id="protocol twice",
        ),
        pytest.param(
            SMALL,
            {"kafka.sasl.existingSecret": "s"},
            "kafka.sasl.mechanism: is missing",
            id="a secret for nothing",
        ),
        pytest.param(
            SMALL,
            {"checkpoint.uri": "s3a://b/x", "checkpoint.volume.existingClaim": "c"},
            "checkpoint.volume.existingClaim: there is checkpoint.uri",
            id="two checkpoints",
        ),
        pytest.param(
            SMALL,
            {"executors.maxCount": 3},
            "executors.maxCount: there are no executors",
            id="more executors than none",
        ),
        pytest.param(
            FULL,
            {"executors.maxCount": 2},
            "executors.maxCount: is less than executors.count",
            id="fewer executors at most than at least",
        ),
        pytest.param(
            OPERATOR,
            {"executors.maxCount": 5},
            "executors.maxCount: with sparkOperator.enabled",
            id="an operator that makes executors",
        ),
        pytest.param(
            SMALL,
            {"settings.spark": {"spark.executorEnv.IKEBANA_PORT": "1"}},
            "settings.spark.spark.executorEnv.IKEBANA_PORT: is set by the chart",
            id="the ports of shards",
        ),
        pytest.param(
            SMALL,
            {"sparkOperator.enabled": True},
            "executors.count: sparkOperator.enabled needs",
            id="an operator without executors",
        ),
        pytest.param(
            FULL,
            {"serviceAccount.create": False},
            "serviceAccount.name: is missing",
            id="no account",
        ),
        pytest.param(
            FULL,
            {"metrics.podMonitor.enabled": True},
            "metrics.podMonitor.enabled: metrics.serviceMonitor.enabled",
            id="two monitors",
        ),
        pytest.param(
            FULL, {"strimzi.cluster": ""}, "strimzi.cluster: is missing", id="no cluster"
        ),
        pytest.param(
            FULL,
            {"pipeline.file": "", "pipeline.existingConfigMap": "x"},
            "strimzi.acls.pipeline: is missing",
            id="unknown topics",
        ),
    ],
)
def test_values_at_odds(values: Path, options: dict[str, object], told: str) -> None:
    """What is right by itself and wrong together is told by the chart's own check."""
    done = run_helm("template", "r", CHART, "-f", values, *setting(options))
    assert done.returncode != 0
    assert told in done.stderr


def test_every_problem_is_told_at_once() -> None:
    """Nobody has to try again and again."""
    options = setting({"pipeline.file": "", "kafka.bootstrapServers": "", "executors.count": 2})
    done = run_helm("template", "r", CHART, "-f", SMALL, *options)
    assert "3 of the values can't be:" in done.stderr


def test_a_secret_that_is_a_variable_is_none() -> None:
    """A pipeline file may name a variable or a file where the secret is."""
    text = 'kafka: {bootstrap.servers: "k:1", sasl.password: "${PASSWORD}"}'
    done = run_helm("template", "r", CHART, "-f", SMALL, *setting({"pipeline.file": text}))
    assert done.returncode == 0, done.stderr


def test_the_schema_knows_every_value() -> None:
    """A value of values.yaml that the schema forgets could never be given."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def unknown(values: object, part: dict[str, object], path: str) -> list[str]:
        properties = part.get("properties")
        if not isinstance(values, dict) or not isinstance(properties, dict):
            return []
        assert part["additionalProperties"] is False, path
        return [
            problem
            for name, value in values.items()
            for problem in (
                unknown(value, properties[name], f"{path}.{name}")
                if name in properties
                else [f"{path}.{name}"]
            )
        ]

    assert unknown(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "") == []
