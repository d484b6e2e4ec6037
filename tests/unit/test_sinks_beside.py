"""Sinks beside a run: processes that are kept, how they stand, and what is refused before."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from ikebana.errors import ConfigError, FencedError
from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.base.processes import on_signals
from ikebana.processor.checkpoint.checkpoint import Checkpoint, metadata_of
from ikebana.processor.cli import deliver
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.pipeline_argument import PipelineArgument
from ikebana.processor.cli.run import sinks_of
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.watching.health import Health, HealthLimits
from ikebana.processor.watching.monitor import Monitor
from ikebana.processor.watching.reports import RunStart
from ikebana.processor.watching.sinks import (
    SinkBoard,
    SinkError,
    SinkFigures,
    Sinks,
)
from support.waiting import wait_until

# A sink that notes its process id, answers /ready, and says where.
ANSWERS = """
import http.server, json, os, sys
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503)
        self.end_headers()
        told = {"ready": True, "reason": "delivering", "upper": 7, "lag_seconds": None}
        self.wfile.write(json.dumps({**told, "updates": 3, "behind_offsets": 1}).encode())
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
url = f"http://127.0.0.1:{server.server_port}"
print(json.dumps({"level": "INFO", "message": "serving", "url": url}), flush=True)
server.serve_forever()
"""
FAILS = """
import json, sys
print("a line of a library", flush=True)
print(json.dumps({"level": "ERROR", "message": "the table is gone\\nHint: Make it."}), flush=True)
sys.exit(int(sys.argv[1]))
"""
FILE = """\
pipeline: shop
inputs: {orders: {topic: orders}}
operators: {order: {upsert: orders}}
outputs:
  whole: {from: order, topic: shop.whole}
  newest: {from: order, topic: shop.newest, format: upsert}
kafka: {bootstrap.servers: "localhost:1"}
run: {checkpoint: c}
deliver:
  lake:
    parquet: {folder: lake}
    tables: {orders: {from: whole, mode: changes, columns: {v: {type: BLOB, whole: value}}}}
"""
PLAN = Plan(
    "shop",
    inputs=(Input("orders", ("orders",)),),
    operators=(Upsert("order", "orders"),),
    outputs=(Output("whole", "order", "shop.whole"),),
)

LAKE = DeliverSection.model_validate(
    {"parquet": {"folder": "f"}, "tables": {"t": {"from": "whole"}}}
)


def python(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-S", "-c", script, *map(str, arguments)]


@contextmanager
def board(*names: str) -> Iterator[SinkBoard]:
    with SinkBoard(names, every_s=0.05) as made:
        yield made


class Commanded(Sinks):
    """Sinks that run other commands."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        super().__init__(dict.fromkeys(commands, LAKE), Path("shop.yaml"))
        self._commands = commands

    def commands(self, *_: str) -> dict[str, list[str]]:
        return self._commands


def started(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_a_sink_is_asked_where_it_answers_and_started_again_when_it_is_killed(
    tmp_path: Path,
) -> None:
    """It ends with the block, and what it said stands until then."""
    pids = tmp_path / "pids"
    said: list[str] = []

    sinks = Commanded({"lake": python(ANSWERS, pids)})
    with board("lake") as of, sinks.beside(of, said.append, once=False) as sinks_start:
        assert of.figures()["lake"].state == "starting"
        sinks_start.started(RunStart("c", 1, precedes=True))
        assert not pids.exists()
        sinks_start.started(RunStart("c", 2))
        sinks_start.started(RunStart("c", 3))
        wait_until(lambda: of.figures()["lake"].ready, 20, "the sink's answer")
        assert of.figures()["lake"] == SinkFigures(
            ready=True, state="delivering", frontier=7, updates=3, behind=1
        )

        [first] = started(pids)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: of.figures()["lake"].restarts == 1, 20, "its end")
        assert of.figures()["lake"].frontier == 7
        wait_until(lambda: of.figures()["lake"].ready, 20, "its answer after that")
        [_, second] = started(pids)

    assert not psutil.pid_exists(second)
    assert said == [
        "sink lake: its process ended with status 137",
        "sink lake: starting again in 1 s",
    ]


def test_an_error_of_a_sink_is_told_and_not_the_end(tmp_path: Path) -> None:
    """Its words stand on the board while it waits to be started again."""
    said: list[str] = []

    sinks = Commanded({"lake": python(FAILS, 1)})
    with board("lake") as of, sinks.beside(of, said.append, once=False) as sinks_start:
        sinks_start.started(RunStart("c", 1))
        wait_until(lambda: "again" in of.figures()["lake"].state, 20, "the failure")
        told = of.figures()["lake"]

    assert (told.ready, told.state) == (False, "the table is gone; starting again in 1 s")
    assert said[:2] == [
        "sink lake: a line of a library",
        "sink lake: the table is gone\nHint: Make it.",
    ]


def test_a_sink_that_was_taken_over_is_left_alone() -> None:
    """Status 3; otherwise two instances would take turns."""
    said: list[str] = []

    sinks = Commanded({"lake": python(FAILS, 3)})
    with board("lake") as of, sinks.beside(of, said.append, once=False) as sinks_start:
        sinks_start.started(RunStart("c", 1))
        wait_until(lambda: of.figures()["lake"].state == "the table is gone", 20, "its end")
        assert of.figures()["lake"].restarts == 0

    assert "sink lake: starting again in 1 s" not in said


@pytest.mark.parametrize(
    ("status", "raised"), [(0, None), (1, SinkError), (3, FencedError)], ids=str
)
def test_once_is_until_all_have_ended(status: int, raised: type[Exception] | None) -> None:
    """None is started again, and a failure is raised when the others are done."""
    commands = {"lake": python(FAILS, status), "shop": python("print('done')")}
    said: list[str] = []

    def run() -> None:
        with board(*commands) as of, on_signals() as stopping:
            Commanded(commands).deliver_once(of, said.append, stopping)

    if raised is None:
        run()
    else:
        with pytest.raises(raised, match="the table is gone"):
            run()
    assert "sink shop: done" in said


def in_file(folder: Path, text: str = FILE) -> Path:
    path = folder / "shop.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("delivers", "places", "own", "told"),
    [
        pytest.param(True, {}, ["lake"], ["lake"], id="by default"),
        pytest.param(False, {}, [], [], id="left to others"),
        pytest.param(True, {"lake": "http://l:1"}, [], ["lake"], id="elsewhere"),
    ],
)
def test_who_runs_a_sink(
    tmp_path: Path,
    delivers: bool,  # noqa: FBT001 -- a parameter of the test
    places: Mapping[str, str],
    own: Sequence[str],
    told: Sequence[str],
) -> None:
    """This run, unless it leaves them to others or is told where they are."""
    pipeline = PipelineArgument(in_file(tmp_path), "b:1", "c")
    sinks = sinks_of({"lake": LAKE}, pipeline, places, delivers=delivers)

    assert list(sinks.commands()) == own
    assert list(sinks.parts) == told
    for command in sinks.commands("--once").values():
        file = str(tmp_path / "shop.yaml")
        assert command[1:] == [
            *("-m", "ikebana", "deliver", file, "lake"),
            *("--bootstrap-servers", "b:1", "--checkpoint", "c", "--once"),
        ]


def test_a_place_of_no_sink_is_refused(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(ConfigError, match=r'has no sink "lak"; did you mean "lake"'):
        sinks_of(
            {"lake": LAKE},
            PipelineArgument(in_file(tmp_path)),
            {"lak": "http://l:1"},
            delivers=True,
        )


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        pytest.param(
            "from: whole,",
            "from: whol,",
            'deliver.lake.tables.orders.from: there is no output "whol"; did you mean "whole"? '
            "(line 12)",
            id="no output",
        ),
        pytest.param(
            "from: whole,",
            "from: newest,",
            'deliver.lake.tables.orders.from: "newest" has the format upsert, which cannot be '
            "delivered; deliver an output in the format diff (line 12)",
            id="a format without the old values",
        ),
        pytest.param(
            "from: whole,",
            "from: whole, format: diff,",
            "deliver.lake.tables.orders.format: an output of the pipeline has its own",
            id="a format beside the output's",
        ),
        pytest.param(
            "    parquet: {folder: lake}\n",
            "",
            "deliver.lake: has to have one target; it has none. A target is one of postgres",
            id="no target",
        ),
        pytest.param(
            "{orders: {from: whole, mode: changes, columns: {v: {type: BLOB, whole: value}}}}",
            "{}",
            "deliver.lake.tables: is empty; name at least one table (line 12)",
            id="no table",
        ),
        pytest.param(
            "parquet: {folder: lake}\n    tables: {orders: {from: whole, mode: changes, "
            "columns: {v: {type: BLOB, whole: value}}}}",
            f"postgres: {{}}\n    tables: {{shop.{'é' * 32}: {{from: whole}}}}",
            f'PostgreSQL would cut the name "{"é" * 32}", which has more than 63 bytes',
            id="a name that the target would cut",
        ),
        pytest.param(
            "parquet: {folder: lake}\n    tables: {orders: {from: whole, mode: changes, "
            "columns: {v: {type: BLOB, whole: value}}}}",
            f"postgres: {{}}\n    tables: {{t: {{from: whole, columns: {{{'c' * 64}: JSON}}}}}}",
            "deliver.lake.tables.t: PostgreSQL would cut the name",
            id="a column that the target would cut",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "deliver"])
def test_mistakes_of_sinks_are_refused_before_a_start(
    tmp_path: Path, command: str, there: str, instead: str, told: str
) -> None:
    """By each command that reads the file; nothing is asked of brokers."""
    assert FILE.count(there) == 1
    file = in_file(tmp_path, FILE.replace(there, instead))

    done = CliRunner().invoke(cli, [command, str(file)])

    assert isinstance(done.exception, ConfigError)
    assert told in str(done.exception)


def test_a_long_name_is_found_among_the_columns_of_a_view(tmp_path: Path) -> None:
    """Which the file does not list."""
    name = "a" * 64
    declared = f"orders: {{topic: orders, columns: {{{name}: BIGINT}}}}"
    text = FILE.replace("orders: {topic: orders}", declared)
    text = text.replace("parquet: {folder: lake}", "postgres: {}")
    text = text.replace(", columns: {v: {type: BLOB, whole: value}}", "")

    done = CliRunner().invoke(cli, ["plan", str(in_file(tmp_path, text))])

    assert isinstance(done.exception, ConfigError)
    assert f'PostgreSQL would cut the name "{name}"' in str(done.exception)


def test_an_output_that_cannot_be_read_is_no_missing_one(tmp_path: Path) -> None:
    """A mistake in an output is told once, and not as one of the sink that reads it."""
    file = in_file(tmp_path, FILE.replace("topic: shop.whole}", "topc: shop.whole}"))

    done = CliRunner().invoke(cli, ["plan", str(file)])

    assert isinstance(done.exception, ConfigError)
    assert "outputs.whole.topc: there is no such setting" in str(done.exception)
    assert "deliver" not in str(done.exception)


def test_columns_that_a_run_has_added_are_delivered(tmp_path: Path) -> None:
    """Those of the checkpoint, which a sink that takes all columns has no list of."""
    text = FILE.replace("topic: orders}", "topic: orders, columns: {n: BIGINT}}")
    adding = text.replace("{n: BIGINT}}", "{n: BIGINT}, on_new_column: add}")
    file, place = in_file(tmp_path, adding), str(tmp_path / "checkpoint")
    pipeline = PipelineArgument(file, checkpoint=place)
    plan, settings = pipeline.read({"orders": {"gift": "BOOLEAN"}})
    offset = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    Checkpoint(place).write(metadata_of(place, plan, settings.shards, offset))

    def columns(checkpoint: str | None) -> list[str]:
        _, _, found = deliver.read(PipelineArgument(file, None, checkpoint))
        assert found is not None
        return [column.name for column in found.inputs[0].columns]

    assert columns(place) == ["n", "gift"]
    in_file(tmp_path, text)
    assert columns(place) == ["n"]
    # Who adds none needs no checkpoint.
    in_file(tmp_path, text.replace("run: {checkpoint: c}\n", ""))
    assert columns(None) == ["n"]


def watched(figures: SinkFigures) -> Monitor:
    health = Health(HealthLimits(60, 900, 3600), time.monotonic)
    health.idle()
    return Monitor(PLAN, health, sinks=({"lake": LAKE}, lambda: {"lake": figures}))


def test_a_sink_that_fails_is_seen_and_the_pipeline_is_ready() -> None:
    """In the body of /ready, in the metrics, and among the figures of the console."""
    failed = SinkFigures(
        ready=False,
        state="the target is away",
        frontier=7,
        lag_s=12.5,
        updates=3,
        behind=4,
        restarts=2,
    )
    monitor = watched(failed)

    good, body = monitor.readiness()
    _, text = monitor.scrape("")

    assert good
    assert json.loads(body)["sinks"]["lake"] == {
        "ready": False,
        "state": "the target is away",
        "frontier": 7,
        "lag_s": 12.5,
        "updates": 3,
        "behind": 4,
        "restarts": 2,
    }
    assert monitor.figures().sinks == {"lake": failed}
    for name, value in [
        ("ready", 0.0),
        ("restarts", 2.0),
        ("frontier", 7.0),
        ("lag_seconds", 12.5),
        ("behind_offsets", 4.0),
    ]:
        line = f'ikebana_sink_{name}{{pipeline="shop",sink="lake"}} {value}'
        assert line in text.decode()


def test_a_sink_stands_behind_its_outputs_in_the_plan() -> None:
    """With room for what changes of it."""
    drawn = json.loads(bytes(watched(SinkFigures(ready=True, state="delivering")).drawn))

    [run, written] = drawn["drawings"]
    assert drawn["boxes"]["sink lake"] == "lake"
    assert 'data-box="sink lake"' in run["svg"]
    assert "into parquet" in run["svg"]
    assert "table t from whole" in run["svg"]
    assert 'data-box="sink lake"' not in written["svg"]


def test_a_sink_that_does_not_answer_is_not_ready() -> None:
    """It says so, and keeps what was told before."""
    with board("lake") as of:
        of.at("lake", "http://127.0.0.1:1")
        wait_until(lambda: "does not answer" in of.figures()["lake"].state, 20, "no answer")
        assert not of.figures()["lake"].ready
