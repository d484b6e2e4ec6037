"""Who may look at the records of a run, by `--token-file`."""

from pathlib import Path

from click.testing import CliRunner

from ikebana.processor.cli.main import cli
from ikebana.processor.cli.watching import _looking, _sight
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert

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
    with _looking(PLAN, SETTINGS, _sight(file)) as looking:
        seen = {token: looking.may(token) for token in ("everything", "outputs", "", "other")}
        assert seen == {"everything": True, "outputs": False, "": False, "other": False}
        assert looking.columns("nothing") is None


def test_tokens_need_an_address(tmp_path: Path) -> None:
    """Before the pipeline file is read; and so does everything else that is about one."""
    for option in (f"--token-file={tmp_path}", "--anyone", "--tls-cert=c", "--probes=:1"):
        found = CliRunner().invoke(cli, ["run", "nowhere.yaml", option])
        assert found.exit_code == 2
        assert f"{option.partition('=')[0]} needs --http" in found.output
