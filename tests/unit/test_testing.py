"""`ikebana.testing`, as users test their pipelines with it, and `ikebana.load`."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ikebana as ik
from ikebana import Plan
from ikebana.errors import CheckpointError, RecordError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.planning.plan import OnError
from ikebana.testing import Run, evaluate
from support.doc_blocks import ROOT

FIRST = ROOT / "examples" / "first.yaml"
COLUMNS = [ik.Column("c", "VARCHAR"), ik.Column("n", "BIGINT")]


def sums(*, on_error: OnError = "record") -> ik.Pipeline:
    """Sums of another key than that of the upserts: what is summed up exchanges between shards."""
    shop = ik.Pipeline("shop", on_error=on_error)
    orders = shop.topic("orders", columns=COLUMNS).upsert()
    orders.reduce(by="c", name="sums", n="sum(n)").to("sums")
    return shop


def fed(run: Run) -> Run:
    """Twelve orders of three customers, each of which has 4 of n = 1."""
    for number in range(12):
        run.send("orders", number, {"c": f"c{number % 3}", "n": 1})
    return run


SUMS = [(f"c{number}", {"n": 4}) for number in range(3)]


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("committed", [(), (0,), (0, 1, 4)], ids=str)
def test_a_death_changes_nothing(shards: int, committed: tuple[int, ...]) -> None:
    """Whichever shards have committed, and in whichever batch."""
    run = fed(Run(sums(), shards=shards))
    own = [shard for shard in committed if shard < shards]
    batches = 0
    while run.crash(committed=own, limit=5):
        run.crash(committed=own)
        run.restart()
        assert run.batch()
        batches += 1

    assert batches >= 3
    assert sorted(run.collection("sums")) == SUMS
    assert run.errors() == []


def test_nobody_sees_a_batch_before_it_is_finished() -> None:
    """Frontiers stay, and so does what outputs have."""
    run = fed(Run(sums(), shards=2))
    assert run.crash(committed=[0])

    assert (run.updates("sums"), run.frontier("sums"), run.last.batch) == ([], 0, -1)


@pytest.mark.parametrize("kind", ["map", "reduce", "machine"])
def test_a_function_that_depends_on_more_than_its_arguments_is_told(kind: str) -> None:
    """The batch that is run again gives something else, and it is said what."""
    numbers: Iterator[int] = itertools.count()

    def numbered(*_: Any) -> Any:
        return (1, next(numbers)) if kind == "map" else [next(numbers)]

    pipeline = ik.Pipeline("p")
    topic = pipeline.topic("t")
    if kind == "machine":
        made: Any = topic.machine(lambda *_: [next(numbers)])
    else:
        rows = topic.upsert()
        made = rows.map(numbered) if kind == "map" else rows.reduce(numbered, name="r")
    made.to("out")
    run = Run(pipeline)
    run.send("t", "a", 1)
    run.crash()

    with pytest.raises(CheckpointError, match=r"batch 0 of shard 0, run again, gives other") as e:
        run.batch()
    assert 'output "out"' in str(e.value)
    assert "clock, chance" in str(e.value)


def test_a_batch_that_fails_fails_again_until_errors_are_recorded() -> None:
    """It is in the log; the policy is what may change."""
    run = Run(sums(on_error="fail"))
    run.send("orders", 1, b"{")
    for _ in range(2):
        with pytest.raises(RecordError, match="could not decode value as JSON"):
            run.read()

    run.restart(sums())
    run.read()

    assert [error["offset"] for error in run.errors()] == [0]


def joined(where: str = "o.c = p.key::VARCHAR") -> ik.Pipeline:
    """Sums, and a join that an older run has not."""
    shop = sums()
    prices = shop.topic("prices", columns=[ik.Column("p", "BIGINT")]).upsert()
    orders = shop.topic("orders", columns=COLUMNS).upsert()
    shop.join({"o": orders, "p": prices}, where=where, select={"p": "p.p"}, name="j").to("j")
    return shop


def test_a_restart_refuses_what_a_checkpoint_refuses() -> None:
    """How times are made, here; what may not change is named."""
    run = fed(Run(sums()))
    run.read()

    with pytest.raises(CheckpointError, match=r'time was "ingest", is "offset"'):
        run.restart(replace(sums().plan(), time="offset"))
    assert run.plan == sums().plan()


def test_what_the_state_lacks_of_rows_is_read_again_beside_what_goes_on() -> None:
    """Outputs of before get what comes meanwhile, and the difference when all is read."""

    def pipeline(*columns: str) -> ik.Pipeline:
        shop = ik.Pipeline("shop")
        rows = shop.topic("orders", columns=COLUMNS).upsert()
        rows.select(*columns).named("slim").to("slim")
        return shop

    run = fed(Run(pipeline("n"), shards=2))
    run.read()
    run.restart(pipeline("n", "c"))
    run.send("orders", 99, {"c": "new", "n": 7})
    while (99, {"n": 7}) not in run.collection("slim"):
        assert run.batch(limit=4)
    assert sorted(run.collection("slim"))[0] == (0, {"n": 1})
    run.crash(committed=[0], limit=4)
    run.restart()
    run.read(limit=4)

    assert sorted(run.collection("slim"))[0] == (0, {"c": "c0", "n": 1})
    assert (99, {"c": "new", "n": 7}) in run.collection("slim")
    assert len(run.updates("slim")) == 13 + 26


def test_a_way_back_needs_nothing_to_be_read_to_its_end() -> None:
    """What was read for the other plan is dropped."""
    first = sums()
    run = fed(Run(first))
    run.read()
    wider = sums().plan()
    columns = (COLUMNS[0], ik.Column("n", "INTEGER"))
    wider = replace(wider, inputs=(replace(wider.inputs[0], columns=columns),))
    run.restart(wider)
    for _ in range(2):
        assert run.batch(limit=2)
    run.restart(first)
    run.read()

    assert sorted(run.collection("sums")) == SUMS
    assert run.last.positions.keys() == {"orders"}


def test_a_changed_pipeline_waits_until_all_is_finished() -> None:
    """An unfinished batch is one of the old plan, and so is what is on its way."""
    run = fed(Run(sums(), shards=2))
    run.crash()
    changed = sums().plan()
    changed = replace(changed, outputs=(*changed.outputs, ik.Output("more", "sums", "more")))
    run.restart(changed)
    # It has its outputs at once, of which the plan of before knows nothing.
    assert run.updates("more") == []
    while run.last.transition.edits == 0:
        run.batch()
        assert run.updates("more") == []
    run.read()
    assert sorted(run.collection("more")) == sorted(run.collection("sums"))


def test_what_is_on_its_way_is_finished_with_the_shards_of_before() -> None:
    run, whole = fed(Run(joined(), shards=2)), fed(Run(joined()))
    for each in (run, whole):
        each.send("prices", "c0", {"p": 7})
    run.batch()
    run.restart(shards=3)
    assert len(run.stores) == 2
    run.read()
    assert len(run.stores) == 3
    whole.read()
    assert sorted(run.collection("j")) == sorted(whole.collection("j")) != []


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (3, 2)])
def test_shards_may_be_more_or_fewer(before: int, after: int) -> None:
    """What they keep lies in the shard of its key, and the exchange goes on."""
    run = fed(Run(sums(), shards=before))
    run.read()
    run.restart(shards=after)
    for number in range(6):
        run.send("orders", number, None)
    run.read()

    assert sorted(run.collection("sums")) == [(c, {"n": 2}) for c, _ in SUMS]


def test_latest_begins_at_the_end() -> None:
    """What is there before the pipeline begins is not read."""
    pipeline = ik.Pipeline("p")
    pipeline.topic("t", start="latest").upsert().to("out")
    before = Run(pipeline)
    before.send("t", 1, "before")
    run = Run(pipeline, before.topics)
    run.send("t", 2, "behind")
    run.read()

    assert run.collection("out") == [(2, "behind")]


def test_collections_of_the_past_and_of_negative_counts() -> None:
    """A collection is as of a time; what counts less than nothing is no row."""
    pipeline = ik.Pipeline("p")
    rows = pipeline.topic("t").upsert()
    rows.to("out")
    (-rows).named("negative").to("negative")
    run = Run(pipeline)
    run.send("t", 1, "a")
    run.batch(now_ms=10)
    run.send("t", 1, "b")
    run.batch(now_ms=20)

    assert run.collection("out", as_of=15) == [(1, "a")]
    assert run.collection("out") == [(1, "b")]
    assert run.collection("out", as_of=9) == []
    with pytest.raises(ik.ConfigError, match="has a negative count"):
        run.collection("negative")


def test_what_is_not_there_is_named() -> None:
    """Topics, outputs and data that are no message."""
    run = Run(sums())
    with pytest.raises(ik.ConfigError, match='does not read topic "order"') as e:
        run.send("order", 1, 1)
    assert "It reads orders." in str(e.value)
    for ask in (run.updates, run.frontier, run.messages, run.collection):
        with pytest.raises(ik.ConfigError, match='has no output "sum"'):
            ask("sum")
    with pytest.raises(ik.ConfigError, match=r'a message of topic "orders".*cannot be written'):
        run.send("orders", 1, object())


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_change_nothing_of_an_evaluation(shards: int) -> None:
    """Updates are those of one shard."""
    records: dict[str, list[tuple[Any, Any, int]]] = {
        "orders": [(n, {"c": f"c{n % 3}", "n": n}, n) for n in range(9)],
        "prices": [(f"c{n}", {"p": n}, 4) for n in range(3)],
    }
    one, several = (evaluate(joined(), records, shards=n) for n in (1, shards))

    assert one["sums"]
    assert one["j"]
    for name, updates in one.items():
        assert sorted(several[name], key=repr) == sorted(updates, key=repr)


def test_a_file_is_a_pipeline() -> None:
    """It evaluates, runs in memory, is explained, and makes the plan that it says."""
    first = ik.load(FIRST, environ={})

    assert isinstance(first, ik.Pipeline)
    assert first.evaluate(flights=[(b"N1", {"at": "JFK"}, 0)])["diffs"]
    run = Run(first)
    run.send("flights", b"N1", {"at": "JFK"})
    run.read()
    assert run.collection("diffs") == [(b"N1", {"at": "JFK"})]
    assert "flights" in str(first.explain())


def test_the_settings_of_a_file_are_those_of_its_run() -> None:
    """Others beside them would be in two places."""
    first = ik.load(FIRST, environ={})

    _, settings = first._ready(None, None, None)
    assert settings.checkpoint == "./checkpoint-first"
    _, given = first._ready("there:1", "elsewhere", None)
    assert (given.checkpoint, given.kafka["bootstrap.servers"]) == ("elsewhere", "there:1")
    with pytest.raises(ik.ConfigError, match=r"has the settings of .*first\.yaml"):
        first.start(settings={"run": {"shards": 2}})


def test_a_module_has_pipelines_and_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are pipelines, by `module:name`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loaded_shop.py").write_text(
        "import ikebana as ik\n"
        "shop = ik.Pipeline('shop')\n"
        "shop.topic('orders').upsert().to('out')\n"
        "plan = shop.plan()\n"
    )
    shop, plan = ik.load("loaded_shop:shop"), ik.load("loaded_shop:plan")

    assert shop.plan() == plan.plan()
    with pytest.raises(ik.ConfigError, match='has no "shops"'):
        ik.load("loaded_shop:shops")


SHOWN = """
pipeline: shop
kafka: {bootstrap.servers: localhost:9092}
run: {checkpoint: ./c}
inputs:
  orders: {topic: orders, columns: {n: BIGINT}}
operators:
  order: {upsert: orders}
outputs:
  all: {from: order, topic: all, format: FORMAT}
"""


def shown_as(form: str, text: str = SHOWN) -> Plan:
    return parse(text.replace("FORMAT", form), "shop.yaml", environ={}).plan


@pytest.mark.parametrize("form", ["diff", "cdcv2-json", "cdcv2-avro"])
def test_a_recovery_takes_back_what_updates_say(form: str) -> None:
    run = Run(shown_as(form), shards=2)
    for key in range(3):
        run.send("orders", key, {"n": key})
    run.read()
    had, frontier = run.updates("all"), run.frontier("all")
    run.recover()
    run.read(limit=1)

    assert run.updates("all") == had
    assert run.frontier("all") > frontier


@pytest.mark.parametrize("form", ["upsert", "debezium-json"])
def test_a_recovery_refuses_what_it_cannot_take_back(form: str) -> None:
    """As `ikebana recover` does; the run goes on as it was."""
    run = Run(shown_as(form))
    run.recover()
    run.send("orders", 1, {"n": 1})
    run.read()
    with pytest.raises(CheckpointError, match=r"outputs\.all has the format .* cannot be taken"):
        run.recover()
    run.send("orders", 2, {"n": 2})
    run.read()

    assert len(run.collection("all")) == 2


def test_a_recovery_knows_outputs_by_their_topics() -> None:
    """Whatever names these have had in the lost checkpoint."""
    run = Run(shown_as("diff"))
    run.send("orders", 1, {"n": 1})
    run.read()
    renamed = SHOWN.replace("  all: {", "  rows: {") + "  all: {from: order, topic: other}\n"
    run.restart(shown_as("diff", renamed))
    run.read()
    frontiers = {run.frontier("rows"), run.frontier("all")}
    had = run.updates("rows"), run.updates("all")
    run.recover()
    assert {run.frontier("rows"), run.frontier("all")} == frontiers
    run.read()

    assert (run.updates("rows"), run.updates("all")) == had


def test_a_recovery_does_not_go_on_with_an_output_that_an_edit_had_dropped() -> None:
    run = Run(shown_as("diff", SHOWN + "  old: {from: order, topic: old}\n"))
    run.send("orders", 1, {"n": 1})
    run.read()
    run.restart(shown_as("diff"))
    run.read()
    run.send("orders", 2, {"n": 2})
    run.read()
    with pytest.raises(CheckpointError, match=r"outputs\.old has .* an edit had removed"):
        run.recover(shown_as("diff", SHOWN + "  old: {from: order, topic: old}\n"))
    run.recover(shown_as("diff", SHOWN + "  old: {from: order, topic: older}\n"))
    run.read()

    assert sorted(run.collection("old")) == sorted(run.collection("all"))
