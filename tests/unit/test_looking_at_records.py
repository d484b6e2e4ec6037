"""Who may look at the records of a run, by `--token-file`."""

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.run import _looking
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.watching import guard, health
from ikebana.processor.watching.health import Health
from ikebana.processor.watching.monitor import Monitor
from support.waiting import patient
from support.watched_runs import monitored

PLAN = Plan(
    "shop",
    inputs=(Input("orders", ("orders",)),),
    operators=(Upsert("current", "orders"),),
    outputs=(Output("out", "current", "orders.diffs"),),
)
SETTINGS = Settings(checkpoint="./c", kafka={"bootstrap.servers": "localhost:1"})
TOKENS = """
tokens:
- {name: all of it, token: everything, collections: all}
- {name: outputs, token: outputs, collections: [orders.diffs]}
"""


def test_only_tokens_that_see_everything_see_records(tmp_path: Path) -> None:
    """One that may see outputs may not see what comes in."""
    file = tmp_path / "tokens.yaml"
    file.write_text(TOKENS)
    monitor = Monitor(PLAN, Health(health.HealthLimits(60, 900, 3600), time.monotonic))
    seen = {}
    with (
        _looking(PLAN, SETTINGS) as looking,
        monitored(monitor, guard.AccessLimits(guard.read_access(file)), looking) as url,
    ):
        for token in ("everything", "outputs", "", "other"):
            headers = {"Authorization": f"Bearer {token}"}
            request = urllib.request.Request(f"{url}/v1/columns?input=nothing", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(request, timeout=patient(20))
            seen[token] = refusal.value.code
    assert seen == {"everything": 404, "outputs": 403, "": 401, "other": 401}


def test_tokens_need_an_address(tmp_path: Path) -> None:
    """Before the pipeline file is read; and so does everything else that is about one."""
    for option in (f"--token-file={tmp_path}", "--anyone", "--tls-cert=c", "--probes=:1"):
        found = CliRunner().invoke(cli, ["run", "nowhere.yaml", option])
        assert found.exit_code == 2
        assert f"{option.partition('=')[0]} needs --http" in found.output
