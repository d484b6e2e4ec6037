"""Columns that messages have and an input does not declare: told, and declared by an edit."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ikebana.codecs.change import Column
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.proposing.look import look, new_columns
from ikebana.processor.authoring.proposing.proposal import later_columns
from ikebana.processor.base.notices import Notice
from ikebana.processor.checkpoint.checkpoint import Checkpoint, metadata_of
from ikebana.processor.cli import pipeline_argument
from ikebana.processor.cli.pipeline_argument import Adding, PipelineArgument
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Input, Upsert
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.source_offset import SourceOffset

SOURCE = Input("orders", ("orders",), columns=(Column("n", "BIGINT"),))
DEBEZIUM = Input("orders", ("orders",), "debezium-json", columns=(Column("n", "BIGINT"),))


def messages(*values: Any) -> list[Message]:
    """Messages in JSON."""
    return [Message(at, b"%d" % at, json.dumps(of).encode()) for at, of in enumerate(values)]


def test_a_column_that_earlier_messages_lack_is_told() -> None:
    """Those that they have and that are not declared are left out on purpose."""
    seen = look(SOURCE, messages({"n": 1, "old": 1, "gift": True}, {"n": 2, "price": 1.5}))

    found = new_columns(SOURCE, {"n", "old"}, seen)

    assert found is not None
    assert (found.kind, found.input, found.of) == ("new column", "orders", "orders")
    assert "messages have 2 columns that earlier ones did not have" in found.words
    # Who may not see what messages have does not see their names.
    assert "gift" not in found.words
    assert found.names == ": gift BOOLEAN, price DOUBLE"
    assert new_columns(SOURCE, {"n", "old", "gift", "price"}, seen) is None
    assert new_columns(Input("orders", ("orders",)), (), seen) is None


def test_later_columns_have_the_types_of_their_values() -> None:
    """Where nothing says more of them."""
    found = later_columns(SOURCE, messages({"n": 1, "gift": True}, {"n": 2, "gift": None}))

    assert found == {"gift": "BOOLEAN"}
    assert later_columns(SOURCE, messages({"n": 1})) == {}


def test_a_column_that_has_become_wider_gets_a_wider_type() -> None:
    """If that takes all values: a single text among numbers is an error of its producer."""
    wide = messages({"n": 1, "gift": True}, {"n": 1 << 63})

    assert later_columns(SOURCE, wide) == {"n": "HUGEINT", "gift": "BOOLEAN"}
    assert later_columns(SOURCE, wide, takes_all=True) == {"gift": "JSON"}
    assert later_columns(SOURCE, messages({"n": 1}, {"n": "one"})) == {}


def test_later_columns_have_the_types_of_their_schemas() -> None:
    """As `ikebana new` proposes them, which also names an encoding if it has to be declared."""
    fields = [
        {"field": "n", "type": "int64"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
    ]
    row = {"type": "struct", "fields": fields, "optional": True}
    schema = {
        "type": "struct",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}],
    }
    event = {"op": "c", "source": {"table": "orders"}, "before": None}
    bare = {**event, "after": {"n": 1, "day": 19753}}

    assert later_columns(DEBEZIUM, messages({"schema": schema, "payload": bare})) == {
        "day": "DATE"
    }
    assert later_columns(DEBEZIUM, messages(bare)) == {"day": "BIGINT"}


FILE = """
pipeline: p
inputs:
  orders: {topic: orders, columns: {n: BIGINT}}
  others: {topic: others}
operators:
  order: {upsert: orders}
  other: {upsert: others}
  all: {sql: 'SELECT * FROM "order"'}
outputs:
  all: {from: all, topic: all}
  other: {from: other, topic: other}
kafka: {bootstrap.servers: b}
run: {checkpoint: c}
"""


def test_a_file_with_later_columns_shows_them_in_what_takes_all_columns() -> None:
    """As if they stood in the file; an input without columns has all of them already."""
    more: dict[str, dict[str, object]] = {"orders": {"gift": "BOOLEAN"}, "others": {"x": "BIGINT"}}

    plan = pipeline.parse(FILE, "p.yaml", environ={}, columns=more).plan

    assert dict(output_types(plan, plan.outputs[0])) == {"n": "BIGINT", "gift": "BOOLEAN"}
    assert plan.inputs[1].columns == ()


def test_columns_that_are_added_take_every_value_where_nothing_has_a_schema() -> None:
    """Values that come later may be of any type, and would be errors of the column."""
    found = later_columns(SOURCE, messages({"n": 1, "gift": True}), takes_all=True)

    assert found == {"gift": "JSON"}


def test_texts_of_columns_that_are_added_need_not_hold_json() -> None:
    """In formats where JSON columns usually are such texts."""
    rows = [{"n": 1, "gift": "a tea", "of": {"box": 1}}, {"n": 2, "gift": '{"a": 1}', "of": None}]
    events = messages(*({"op": "c", "before": None, "after": row} for row in rows))

    found = later_columns(DEBEZIUM, events, takes_all=True)

    assert found == {name: {"type": "JSON", "encoding": "plain"} for name in ("gift", "of")}
    added = tuple(Column(name, "JSON", "plain") for name in found)
    seen = look(dataclasses.replace(DEBEZIUM, columns=(*DEBEZIUM.columns, *added)), events)
    assert (seen.rows, seen.reasons.total()) == (rows, 0)


ADDING = FILE.replace("{n: BIGINT}}", "{n: BIGINT}, on_new_column: add}")


def test_a_checkpoint_keeps_what_was_added(tmp_path: Path) -> None:
    """Until the file says otherwise; what it declares itself counts before that."""
    path, place = tmp_path / "p.yaml", str(tmp_path / "checkpoint")
    path.write_text(ADDING)

    def columns() -> dict[str, str]:
        found = PipelineArgument(path, checkpoint=place).read().plan
        return {column.name: column.type for column in found.inputs[0].columns}

    assert columns() == {"n": "BIGINT"}
    more: dict[str, Any] = {
        "orders": {"gift": "BOOLEAN", "day": {"type": "DATE", "encoding": "date"}}
    }
    plan, settings = PipelineArgument(path, checkpoint=place).read(more)
    offset = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    Checkpoint(place).write(metadata_of(place, plan, settings.shards, offset))

    assert columns() == {"n": "BIGINT", "gift": "BOOLEAN", "day": "DATE"}
    assert PipelineArgument(path, checkpoint=place).read().plan == plan
    path.write_text(ADDING.replace("n: BIGINT}", "n: BIGINT, gift: VARCHAR}"))
    assert columns() == {"n": "BIGINT", "gift": "VARCHAR", "day": "DATE"}
    path.write_text(FILE)
    assert columns() == {"n": "BIGINT"}


def test_a_column_of_an_input_that_was_read_again_stays_added(tmp_path: Path) -> None:
    """Its edit has made another generation of the input, which has the column."""
    path, place = tmp_path / "p.yaml", str(tmp_path / "checkpoint")
    path.write_text(ADDING)
    more: dict[str, Any] = {"orders": {"gift": "BOOLEAN"}}
    plan, settings = PipelineArgument(path, checkpoint=place).read(more)
    offset = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    again = dataclasses.replace(
        plan,
        inputs=(dataclasses.replace(plan.inputs[0], name="orders@2"), plan.inputs[1]),
        operators=(Upsert("order", "orders@2"), *plan.operators[1:]),
    )
    Checkpoint(place).write(metadata_of(place, again, settings.shards, offset))

    found = PipelineArgument(path, checkpoint=place).read().plan

    assert [column.name for column in found.inputs[0].columns] == ["n", "gift"]


NEW = Notice("new column", "orders", "orders", "")


def test_a_run_ends_for_columns_of_inputs_that_add_them() -> None:
    """And for no others; those that the pipeline cannot have do not end it again and again."""
    before = pipeline.parse(ADDING, "p.yaml", environ={})
    after = pipeline.parse(ADDING, "p.yaml", environ={}, columns={"orders": {"gift": "JSON"}})
    answers, stopped = [before, after], list[bool]()
    watcher = Adding(before.plan, lambda: stopped.append(True), lambda: answers.pop(0))

    watcher.notice(
        [Notice("new column", "others", "others", ""), Notice("errors", "orders", "", "")]
    )
    assert len(answers) == 2
    for _ in range(2):
        watcher.notice([NEW])
    assert (watcher.has_columns, stopped, answers) == (False, [], [after])
    watcher.notice([replace(NEW, names=": gift JSON")])
    assert (watcher.has_columns, stopped) == (True, [True])


def test_columns_that_a_pipeline_cannot_have_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told, and do not keep a pipeline from starting, nor other columns."""
    path = tmp_path / "p.yaml"
    text = ADDING.replace('FROM "order"', 'FROM "order" JOIN other ON n = id')
    path.write_text(text.replace("{topic: others}", "{topic: others, columns: {id: BIGINT}}"))
    new = {"orders": {"gift": "JSON", "ID": "BIGINT", "day": "DATE"}}
    monkeypatch.setattr(pipeline_argument, "newest_columns", lambda *_, **__: new)
    said: list[str] = []

    found = PipelineArgument(path, checkpoint=str(tmp_path / "c"))
    plan = found.read_with_new_columns(said.append).plan

    assert [column.name for column in plan.inputs[0].columns] == ["n", "gift", "day"]
    [reason] = said
    assert reason.startswith('column "ID" of input "orders" is not added: ')


def test_columns_are_added_to_declared_ones() -> None:
    """Without any, all columns are read."""
    with pytest.raises(ConfigError, match=r"inputs\.orders\.on_new_column"):
        pipeline.parse(ADDING.replace("columns: {n: BIGINT}, ", ""), "p.yaml", environ={})


def test_adding_columns_is_no_other_plan() -> None:
    """It may be switched on and off between runs."""
    one, other = (pipeline.parse(each, "p.yaml", environ={}).plan for each in (FILE, ADDING))

    assert one.fingerprint() == other.fingerprint()
