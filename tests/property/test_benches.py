"""What is in bench/ runs, and what it measures is right, on sizes that take a moment."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ikebana.processor.base import processes

BENCH = Path(__file__).resolve().parents[2] / "bench"
EXACT = '"exact":true'
# Each with the words that say that what came out is right, if it judges that.
COMMANDS = {
    "decode.py --messages 20 --rounds 2": "",
    "declared.py --messages 20": "",
    "upserted.py --records 2000 --keys 200 --batch 500 --json": EXACT,
    "upserted.py --records 400 --keys 90 --batch 200 --format json --loaded --json": EXACT,
    "upserted.py --records 400 --keys 90 --batch 200 --time offset --json": EXACT,
    "joined.py q3 --scale 0.001 --backlogs 1 --json": EXACT,
    "joined.py asof --scale 0.001 --json": EXACT,
    "joined.py tpch-q3 --scale 0.001 --backlogs 1 --json": EXACT,
    "joins.py triangles --nodes 30 --edges 60": "True",
    "keyed.py hold --pending 1500 --batches 2": "",
    "keyed.py reduce --records 200 --values 10 --batch 50": "",
    "keyed.py windows --rows 20 --changes 2 --only row_number": "",
    "arrange.py --rows 1000 --batches 2 --batch 10": "",
    "recursion.py 50": "",
    "portions.py join --rows 20 --updates 2 --alone": "",
    "portions.py expand --each 20 --updates 2 --alone": "",
    "flight_year.py --days 1 --lateness 1": "hours, exact",
    "serve.py --keys 500 --only write,reads": "",
}
WITH_SPARK = {
    "start.py --records 100 --runs 1 --shards 1": "",
    "one_message.py": "2 kinds of process",
    "batch.py --records 5 --shards 1 --batches 2 --warm 1 --idle 0.5": "",
    "joins.py q3 --customers 50 --orders 500 --lines 2000 --updates 50 --backlogs 1": "True",
    "beside.py dense --systems json/ingest --rounds 1 --records 500 --keys 50": "\nexact\n",
}
# These run several pipelines.
LONGEST = {
    "tpch.py --queries q3 --scale 0.001 --updates 50": "True",
    "pushdown.py --messages 100": "off / on",
}


@pytest.fixture(autouse=True)
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that has what bench/ has, for results; the process of the tests stays as it is."""
    before = set(sys.modules)
    for path in BENCH.iterdir():
        if path.suffix == ".py" or path.name == "peers":
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processes, "_FREEZES", ())
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        *COMMANDS.items(),
        *(pytest.param(*each, marks=pytest.mark.long) for each in WITH_SPARK.items()),
        *(pytest.param(*each, marks=pytest.mark.full) for each in LONGEST.items()),
    ],
)
def test_a_bench_prints_figures_of_what_is_right(
    command: str,
    words: str,
    bench: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints figures, and says that results are exact if it compares them."""
    name, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    status: object = 0

    try:
        runpy.run_path(str(bench / name), run_name="__main__")
    except SystemExit as end:
        status = end.code

    assert not status
    printed = capsys.readouterr().out
    assert re.search(r"\d", printed)
    assert words in printed
    assert not re.search("False|false|DIFFERENT|WRONG", printed)
