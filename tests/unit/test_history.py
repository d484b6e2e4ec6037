"""A history of files is read before the topics of an input, once."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import ikebana as ik
from ikebana import Column, EventTime, Input, Linear, Output, Plan, PlanError, Upsert, steps
from ikebana.errors import CheckpointError, SourceError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.engine.testing.run import Run
from ikebana.processor.kafka.preflight import of_histories
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import History
from ikebana.processor.topics import row_files

COLUMNS = (Column("id", "BIGINT"), Column("v", "BIGINT"))


def rows_of(*ids: int, v: int = 0) -> list[dict[str, Any]]:
    return [{"id": at, "v": v} for at in ids]


def lines(path: Path, rows: Sequence[Any]) -> str:
    """A file of JSON lines."""
    text = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


def packed(path: Path, rows: Sequence[Any], group: int = 2) -> str:
    """A file of Parquet with groups of so many rows."""
    parquet.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=group)
    return str(path)


def plan_of(*files: str, **of_input: Any) -> Plan:
    """The rows of an input by their key, which columns have."""
    given: dict[str, Any] = {"value_format": "debezium-json", "key": ("id",), **of_input}
    given = {"columns": COLUMNS, "history": History(files), **given}
    source = Input("rows", ("rows",), **given)
    if source.is_collection:
        return checked(Plan("p", (source,), (), (Output("out", "rows", "out"),)))
    return checked(Plan("p", (source,), (Upsert("now", "rows"),), (Output("out", "now", "out"),)))


def change(key: int, v: int | None) -> dict[str, Any]:
    """A change of a row, as Debezium has it."""
    after = None if v is None else {"id": key, "v": v}
    return {"op": "d" if v is None else "u", "before": {"id": key, "v": 0}, "after": after}


def shown(run: Run) -> dict[int, int]:
    return {row["id"]: row["v"] for _, row in run.collection("out")}


@pytest.mark.parametrize("time", ["ingest", "offset"])
def test_a_history_is_read_before_the_topic(tmp_path: Path, time: Any) -> None:
    """Whatever has come meanwhile counts after it."""
    files = [
        lines(tmp_path / "a.jsonl", rows_of(1, 2)),
        packed(tmp_path / "b.parquet", rows_of(3)),
    ]
    run = Run(replace(plan_of(*files), time=time), shards=2)
    run.send("rows", None, change(1, 7))
    run.send("rows", None, change(2, None))

    assert run.batch()
    assert shown(run) == {1: 0, 2: 0, 3: 0}
    run.read()
    assert shown(run) == {1: 7, 3: 0}
    assert run.errors() == []
    run.send("rows", None, change(4, 1))
    run.read()
    assert shown(run) == {1: 7, 3: 0, 4: 1}
    # Nothing is kept of what was read.
    assert run.last.input_times["rows"].base is None


@given(
    st.lists(st.lists(st.integers(1, 5), max_size=5), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 25), st.none() | st.integers(1, 9)), max_size=6),
    st.integers(1, 4),
    st.lists(st.sampled_from(["batch", "crash", "restart"]), max_size=6),
)
def test_it_is_read_once_in_portions_through_restarts(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[int]],
    later: list[tuple[int, int | None]],
    limit: int,
    steps: list[str],
) -> None:
    """Row by row, then the topic: as one fold over all of it."""
    folder = tmp_path_factory.mktemp("history")
    expected: dict[int, int] = {}
    for at, ids in enumerate(files):
        # Files are read side by side: a key is in one of them.
        rows = [{"id": 10 * at + each, "v": row} for row, each in enumerate(ids)]
        lines(folder / f"{at}.jsonl", rows)
        expected |= {row["id"]: row["v"] for row in rows}
    for key, v in later:
        expected.pop(key, None)
        if v is not None:
            expected[key] = v
    run = Run(plan_of(f"{folder}/*.jsonl"), shards=2)
    for key, v in later:
        run.send("rows", None, change(key, v))

    for step in steps:
        if step == "batch":
            run.batch(limit=limit)
        elif step == "crash" and run.crash(committed=[1], limit=limit):
            run.restart()
        else:
            run.restart()
    run.read(limit=limit)

    assert shown(run) == expected


def test_rows_have_the_key_of_the_topic(tmp_path: Path) -> None:
    """A Kafka key is one value, or an object."""
    file = lines(tmp_path / "a.jsonl", rows_of(1, 2))
    for history, keys in (
        (History((file,), ("id",), bare=True), [1, 2]),
        (History((file,), ("id",)), [{"id": 1}, {"id": 2}]),
    ):
        plan = plan_of(value_format="json", key=(), history=history)
        run = Run(plan)
        run.send("rows", keys[0], None)
        run.read()
        assert [key for key, _ in run.collection("out")] == keys[1:]


@pytest.mark.parametrize("mode", ["diffs", "append"])
def test_rows_of_a_collection_are_added(tmp_path: Path, mode: Any) -> None:
    """Changes may take them away."""
    form = {"diffs": "debezium-json", "append": "json"}[mode]
    file = lines(tmp_path / "a.jsonl", rows_of(1, 2))
    key = ("id",) if mode == "diffs" else ()
    run = Run(plan_of(file, value_format=form, mode=mode, key=key))
    sent = change(1, 7) if mode == "diffs" else {"id": 1, "v": 7}
    run.send("rows", None, sent)
    run.read()

    rows = sorted(row["v"] for _, row in run.collection("out"))
    assert rows == ([0, 7] if mode == "diffs" else [0, 0, 7])


def test_encodings_are_of_messages_alone(tmp_path: Path) -> None:
    """A file has dates and decimals as they are."""
    columns = (
        Column("id", "BIGINT"),
        Column("v", "DECIMAL(9,2)", encoding="decimal"),
        Column("day", "DATE", encoding="date"),
    )
    row = {"id": 1, "v": Decimal("12.50"), "day": date(2024, 1, 31)}
    run = Run(plan_of(packed(tmp_path / "a.parquet", [row]), columns=columns))
    after = {"id": 2, "v": "BOI=", "day": 19_753}
    run.send("rows", None, {"op": "c", "before": None, "after": after})
    run.read()

    assert run.errors() == []
    assert sorted((row["id"], row["v"], row["day"]) for _, row in run.collection("out")) == [
        (1, 12.5, "2024-01-31"),
        (2, 12.5, "2024-01-31"),
    ]


def test_a_sequence_orders_files_and_messages(tmp_path: Path) -> None:
    """A message of before a row of the file is outdated."""
    options = (("sequence", "v"), ("deleted", "gone"))
    file = lines(tmp_path / "a.jsonl", [{"id": 1, "v": 5}, {"id": 2, "v": 5, "gone": True}])
    run = Run(plan_of(file, value_format="changes", options=options))
    for key, v in ((1, 4), (2, 4), (3, 1)):
        run.send("rows", None, {"id": key, "v": v})
    run.read()

    assert shown(run) == {1: 5, 3: 1}
    assert run.counted["outdated"] == 2


def test_a_row_that_is_wrong_is_an_error_record(tmp_path: Path) -> None:
    """Its place is that of the file and the row; a good message of the key takes it back."""
    file = lines(tmp_path / "a.jsonl", [{"id": 1, "v": 1}, {"id": 2, "v": "x"}])
    run = Run(plan_of(file))
    run.read()

    [error] = run.errors()
    assert (error["topic"], error["partition"], error["offset"]) == ("history rows", 0, 1)
    run.send("rows", None, change(2, 3))
    run.read()
    assert run.errors() == []


@pytest.mark.parametrize("where", ["id > 1", "v > 1", "id > 1 AND v > 1"])
def test_conditions_hold_of_files_as_well(tmp_path: Path, where: str) -> None:
    """Also those that are tried before a message is decoded."""
    file = lines(tmp_path / "a.jsonl", [*rows_of(1, 2, v=1), *rows_of(3, v=2)])
    plan = plan_of(file)
    of_some = Linear("some", "now", (steps.Sql(where=(where,)),))
    plan = replace(
        plan, operators=(*plan.operators, of_some), outputs=(Output("out", "some", "o"),)
    )
    run = Run(checked(plan))
    run.send("rows", None, change(4, 4))
    run.read()

    rows = {1: 1, 2: 1, 3: 2, 4: 4}
    kept = {"id > 1": {2, 3, 4}, "v > 1": {3, 4}}.get(where, {3, 4})
    assert shown(run) == {key: v for key, v in rows.items() if key in kept}


def test_other_inputs_do_not_wait(tmp_path: Path) -> None:
    """Only the topics of the input do."""
    plan = plan_of(lines(tmp_path / "a.jsonl", rows_of(1, 2, 3)))
    other = Input("other", ("other",))
    outputs = (*plan.outputs, Output("others", "of_other", "others"))
    operators = (*plan.operators, Upsert("of_other", "other"))
    run = Run(replace(plan, inputs=(*plan.inputs, other), operators=operators, outputs=outputs))
    run.send("rows", None, change(9, 9))
    run.send("other", 1, 1)
    run.batch(limit=2)

    assert run.collection("others") == [(1, 1)]
    assert 9 not in shown(run)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.ndjson.gz"])
def test_any_rows_of_a_file_are_read_by_their_numbers(tmp_path: Path, name: str) -> None:
    """Groups of Parquet before them are passed over."""
    rows = rows_of(*range(7))
    write = packed if name.endswith(".parquet") else lines
    [file] = row_files.list_files("rows", [write(tmp_path / name, rows)])
    assert file.rows == 7
    for start in range(8):
        for end in range(start, 8):
            found = [
                m for some in row_files.read(file, start, end, ("id",), bare=True) for m in some
            ]
            assert [(m.offset, m.key) for m in found] == [
                (at, str(at).encode()) for at in range(start, end)
            ]
            assert all(json.loads(m.value or b"") == rows[m.offset] for m in found)


def test_types_of_parquet_are_those_of_rows(tmp_path: Path) -> None:
    """As messages in JSON would have them."""
    row = {
        **{"day": date(2024, 1, 31), "at": datetime(2024, 1, 31, 12, 0, 0, 500_000)},  # noqa: DTZ001
        **{"zoned": datetime(2024, 1, 31, 12, tzinfo=UTC), "price": Decimal("12.50")},
        **{"raw": b"\xff", "list": [1, None], "inner": {"a": None}, "none": None},
    }
    [file] = row_files.list_files("rows", [packed(tmp_path / "a.parquet", [row])])
    [[message]] = row_files.read(file, 0, 1, (), bare=False)

    assert message.key is None
    assert json.loads(message.value or b"") == {
        **{"day": "2024-01-31", "at": "2024-01-31T12:00:00.5", "zoned": "2024-01-31T12:00:00Z"},
        **{"price": 12.5, "raw": "/w==", "list": [1, None], "inner": {"a": None}, "none": None},
    }


def test_a_folder_has_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Others in it, such as marks of Spark's, are none."""
    for name in ("b.parquet", "a.parquet"):
        packed(tmp_path / name, rows_of(1))
    (tmp_path / "_SUCCESS").write_text("")

    found = row_files.list_files("rows", [str(tmp_path), f"file://{tmp_path}/b*"])
    assert [Path(file.path).name for file in found] == ["a.parquet", "b.parquet", "b.parquet"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """By its path: at the start, or when it has changed since."""
    with pytest.raises(SourceError, match='history of input "rows": there is no file at'):
        Run(plan_of(f"{tmp_path}/*.parquet"))
    file = tmp_path / "a.jsonl"
    run = Run(plan_of(lines(file, rows_of(1, 2))))
    lines(file, rows_of(1, 2, 3))
    with pytest.raises(SourceError, match="has changed since the checkpoint was made"):
        run.read()
    [changed] = row_files.list_files("rows", [str(file)])
    with pytest.raises(SourceError, match="row 0 has no column 'k' of the key"):
        list(row_files.read(changed, 0, 1, ("k",), bare=True))
    file.write_text("{\n")
    [wrong] = row_files.list_files("rows", [str(file)])
    with pytest.raises(SourceError, match="a line is no row of JSON"):
        list(row_files.read(wrong, 0, 1, (), bare=True))


@pytest.mark.parametrize(
    ("of_input", "problem"),
    [
        ({"value_format": "diff", "key": ()}, "has all that there was by itself"),
        ({"event_time": EventTime(of="v")}, "rows of files have no place among event times"),
        ({"history": History(())}, "has to have one of files, iceberg and delta"),
        ({"history": History(("a.csv",))}, "'a.csv' is no file of .parquet"),
        ({"history": History(("a.jsonl",), ("id",))}, "is the key of the input, which has one"),
        ({"value_format": "json", "key": ()}, "a row of a file has no Kafka key"),
        ({"value_format": "bytes", "key_format": "bytes", "key": ()}, "bytes have no"),
        (
            {
                "value_format": "json",
                "key": (),
                "history": History(("a.json",), ("a", "b"), bare=True),
            },
            "one column alone can be the key by itself",
        ),
    ],
)
def test_histories_that_cannot_be_are_refused(of_input: dict[str, Any], problem: str) -> None:
    """With the plan."""
    with pytest.raises(PlanError, match=problem):
        plan_of("a.jsonl", **of_input)


def test_a_history_is_of_a_new_checkpoint_alone(tmp_path: Path) -> None:
    """A restart may leave it out when it was read, and cannot have another one."""
    file = lines(tmp_path / "a.jsonl", rows_of(1))
    plan = plan_of(file)
    run = Run(plan)
    run.read()
    without = replace(plan, inputs=(replace(plan.inputs[0], history=None),))

    run.restart(without)
    run.send("rows", None, change(2, 2))
    run.read()
    assert shown(run) == {1: 0, 2: 2}
    other = lines(tmp_path / "b.jsonl", rows_of(3))
    with pytest.raises(CheckpointError, match="history is read once, by a new checkpoint"):
        run.restart(plan_of(other))
    added = Input("more", ("more",), columns=COLUMNS, history=History((other,), ("id",)))
    more = replace(
        plan,
        inputs=(*plan.inputs, added),
        operators=(*plan.operators, Upsert("of_more", "more")),
        outputs=(*plan.outputs, Output("mores", "of_more", "mores")),
    )
    with pytest.raises(
        CheckpointError, match=r"inputs\.more\.history is read by a new checkpoint"
    ):
        run.restart(more)


def test_an_input_with_event_times_beside_it_does_not_wait(tmp_path: Path) -> None:
    """Rows of files count at the last time of a batch, as other records without times do."""
    plan = plan_of(lines(tmp_path / "a.jsonl", rows_of(1, 2, 3)))
    dated = Input("dated", ("dated",), event_time=EventTime(clock="kafka", idle_ms=None))
    outputs = (*plan.outputs, Output("times", "of_dated", "times"))
    operators = (*plan.operators, Upsert("of_dated", "dated"))
    run = Run(replace(plan, inputs=(*plan.inputs, dated), operators=operators, outputs=outputs))
    run.send("rows", None, change(1, 7))
    for time in (1_000, 2_000, 3_000):
        run.send("dated", time, 1, timestamp=time)
        run.read(limit=2)

    assert shown(run) == {1: 7, 2: 0, 3: 0}
    assert [key for key, _ in run.collection("times")] == [1_000, 2_000]


YAML = """
pipeline: p
inputs:
  rows:
    topic: rows
    columns: {id: BIGINT, v: BIGINT}
    history: {files: [a.jsonl, "b/*.parquet"], key: id, bare_key: true}
operators: {now: {upsert: rows}}
outputs: {out: {from: now, topic: out}}
kafka: {bootstrap.servers: "b:9092"}
run: {checkpoint: c}
"""
SQL = """
CREATE PIPELINE p WITH (
    kafka = (bootstrap.servers = 'b:9092'), run = (checkpoint = 'c'));
CREATE SOURCE rows (id BIGINT, v BIGINT) FROM KAFKA (topic = 'rows',
    history = (files = 'a.jsonl', key = id, bare_key = true));
CREATE OPERATOR now WITH (upsert = rows);
CREATE SINK out FROM now INTO KAFKA (topic = 'out');
"""


def test_a_file_names_a_history() -> None:
    """In YAML, in SQL and in Python."""
    history = History(("a.jsonl", "b/*.parquet"), ("id",), bare=True)
    pipeline = ik.Pipeline("p")
    topic = pipeline.topic("rows", columns=COLUMNS, history=history)
    topic.upsert("now").to("out")

    assert parse(YAML, "p.yaml", environ={}).plan.inputs[0].history == history
    assert pipeline.plan().inputs[0].history == history
    in_sql = parse(SQL, "p.sql", environ={}).plan.inputs[0].history
    assert in_sql == History(("a.jsonl",), ("id",), bare=True)


def test_preflight_counts_the_rows(tmp_path: Path) -> None:
    """Where a start would read them."""
    plan = plan_of(lines(tmp_path / "a.jsonl", rows_of(1, 2)))
    settings = Settings(str(tmp_path / "checkpoint"), {"bootstrap.servers": "b"})
    [check] = of_histories(plan, settings)
    assert (check.status, check.fact) == ("ok", "2 rows in 1 file")
    [wrong] = of_histories(plan_of(f"{tmp_path}/none.jsonl"), settings)
    assert wrong.status == "failed"
