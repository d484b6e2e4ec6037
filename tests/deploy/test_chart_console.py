"""What the chart makes of the driver's console: who reaches it, and by which options of `run`."""

from pathlib import Path
from typing import Any

import click
import pytest

from deploy.charts import (
    FULL,
    OPERATOR,
    SMALL,
    Object,
    container,
    driver,
    only,
    rendered,
    setting,
    volume,
)
from ikebana.processor.cli.http_options import AccessOptions
from ikebana.processor.cli.run import Watching, run_command

TOKENS = {"console.tokens.secret": "readers"}
TLS = {"console.tls": {"secret": "cert", "clientCaKey": "ca.crt"}}


def driving(found: list[Object]) -> Object:
    """The driver's container, whoever starts it."""
    kinds = [each["kind"] for each in found]
    if "SparkApplication" not in kinds:
        return container(found)
    pod = only(found, "SparkApplication")["spec"]["driver"]["template"]["spec"]
    return dict(pod["containers"][0])


def options(found: list[Object], monkeypatch: pytest.MonkeyPatch) -> Watching:
    """What `ikebana run` takes from the container's environment."""
    for each in driving(found)["env"]:
        if each["name"].startswith("IKEBANA_"):
            monkeypatch.setenv(each["name"], each["value"])
    with run_command.make_context("run", ["file.yaml"]) as context:
        assert isinstance(context, click.Context)
        given: dict[str, Any] = context.params
    given["access"] = AccessOptions(**{name: given[name] for name in AccessOptions._fields})
    return Watching(**{name: given[name] for name in Watching._fields})


def test_by_default_only_the_pod_itself_reaches_the_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kubectl port-forward` comes from there; metrics and probes have the port that they had."""
    found = rendered(SMALL)
    given = options(found, monkeypatch)
    assert (given.http, given.access.probes) == (("127.0.0.1", 9405), ("0.0.0.0", 9404))
    assert (given.access.token_file, given.access.tls_cert, given.access.anyone) == (
        None,
        None,
        False,
    )
    # It is not refused.
    assert given.listening() is not None
    names = [each["name"] for each in only(found, "Service")["spec"]["ports"]]
    assert names == ["http"]


@pytest.mark.parametrize("more", [TOKENS, TLS, {"console.anyone": True}], ids=lambda more: [*more])
def test_who_says_who_may_see_it_opens_it(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, object]
) -> None:
    """The run takes each of them as access control enough."""
    found = rendered(SMALL, *setting({**more, "console.port": 9999}))
    given = options(found, monkeypatch)
    assert given.http == ("0.0.0.0", 9999)
    assert given.listening() is not None
    ports = {each["name"]: each["port"] for each in only(found, "Service")["spec"]["ports"]}
    assert ports["console"] == 9999
    assert {"name": "console", "containerPort": 9999} in driving(found)["ports"]


def test_its_files_are_mounted_where_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """From secrets that others in the pod cannot read; readers of metrics need none of them."""
    found = rendered(FULL)
    given = options(found, monkeypatch)
    mounts = {each["name"]: each["mountPath"] for each in container(found)["volumeMounts"]}
    assert given.access.token_file == Path(mounts["console-tokens"]) / "tokens.yaml"
    assert given.access.tls_cert == Path(mounts["console-tls"]) / "tls.crt"
    assert given.access.tls_key == Path(mounts["console-tls"]) / "tls.key"
    assert given.access.tls_client_ca == Path(mounts["console-tls"]) / "client-ca.crt"
    tokens = volume(driver(found), "console-tokens")["secret"]
    assert (tokens["secretName"], tokens["defaultMode"]) == ("console-tokens", 0o440)
    paths = {each["path"] for each in volume(driver(found), "console-tls")["secret"]["items"]}
    assert paths == {"tls.crt", "tls.key", "client-ca.crt"}
    rules = only(found, "NetworkPolicy", "orders")["spec"]["ingress"]
    by_port = {rule["ports"][0]["port"]: rule["from"][0] for rule in rules}
    assert by_port["console"]["namespaceSelector"]["matchLabels"] == {"name": "operations"}
    assert by_port["http"]["namespaceSelector"]["matchLabels"] == {"name": "monitoring"}


def test_the_operators_driver_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container is made of the same parts."""
    given = options(rendered(OPERATOR), monkeypatch)
    assert (given.access.anyone, given.http, given.access.probes) == (
        True,
        ("0.0.0.0", 9405),
        ("0.0.0.0", 9404),
    )
