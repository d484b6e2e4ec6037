"""What may change between two runs on one checkpoint, and why the rest may not."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ikebana import (
    Column,
    EventTime,
    Input,
    Linear,
    Output,
    Plan,
    Reduce,
    ReduceRows,
    Upsert,
    steps,
)
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint import parts
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, metadata_of
from ikebana.processor.checkpoint.recorded_plan import (
    edit_to,
    ineffective_hints,
    metadata_after,
    recorded,
    step_to,
    with_checkpoint_names,
)
from ikebana.processor.engine.replaying import ArrangementPast, Replay
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.planning.backfill import read_again
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, JoinInput
from ikebana.processor.planning.plan import Operator
from ikebana.processor.topics.source_offset import SourceOffset

INPUTS = (
    Input("orders_in", ("o",), columns=(Column("ck", "BIGINT"), Column("n", "BIGINT"))),
    Input("customers_in", ("c",), columns=(Column("ck", "BIGINT"),)),
)
PAIR = (JoinInput("o", "orders"), JoinInput("c", "customers"))
FIRST = DeltaJoin("first", PAIR, ("o.ck = c.ck",), (("n", "o.n"),), "o.n")
SECOND = DeltaJoin("second", PAIR, ("o.ck = c.ck", "o.n > c.ck"), (("ck", "c.ck"),), "o.n")
OTHER = DeltaJoin("other", PAIR, ("o.n = c.ck",), (("n", "o.n"),), "o.n")
PRICED = AsOfJoin("priced", *PAIR, ("o.ck = c.ck",), (("n", "o.n"),))
BEHIND = Linear("behind", "priced", (steps.where("n > 0"),))


def plan_of(*operators: Operator, **changed: Any) -> Plan:
    """Upserts with more operators, each of which is shown if it is a root or behind one."""
    upserts = (Upsert("orders", "orders_in"), Upsert("customers", "customers_in"))
    outputs = tuple(Output(o.name, o.name, o.name) for o in (*upserts, *operators))
    return replace(Plan("p", INPUTS, (*upserts, *operators), outputs), **changed)


def born(plan: Plan) -> CheckpointMetadata:
    """The record of a checkpoint that has run a plan."""
    return metadata_of("/tmp/nowhere", plan, 2, SourceOffset(-1, 0, 0, {}, plan.fingerprint()))


def test_a_join_over_arrangements_that_are_there_may_come() -> None:
    """With what is behind it; the record is of the new plan then."""
    totals = Reduce("totals", "second", (("n", "count(*)"),))
    positive = Linear("positive", "second", (steps.where("ck > 0"),))
    new = plan_of(FIRST, SECOND, totals, positive, PRICED)

    metadata = metadata_after(born(plan_of(FIRST)), new)

    assert metadata_after(metadata, new) == metadata
    assert metadata.released == ()
    edit = edit_to(born(plan_of(FIRST)), new)
    assert edit is not None
    assert edit.fresh > {"priced", "second", "totals"}
    assert edit.added == {"positive", "priced", "second", "totals"}


def test_a_join_may_go_and_what_it_kept_is_released() -> None:
    """But not what others still read; and what comes back is not released."""
    metadata = metadata_after(born(plan_of(FIRST, OTHER)), plan_of(FIRST))

    assert "hold-in other" in metadata.released
    arranged = [name.partition(":")[0] for name in metadata.released if ":" in name]
    # By n of orders: customers by ck serve the first as well.
    assert {name.partition(" ")[2] or name for name in arranged} == {"orders"}
    back = metadata_after(metadata, plan_of(FIRST, SECOND))
    assert "hold-in other" in back.released


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        pytest.param(
            plan_of(FIRST, PRICED, BEHIND, outputs=(Output("priced", "behind", "priced"),)),
            'outputs.priced shows other data of "priced", and the results of an as-of join depend',
            id="a filter behind an as-of join",
        ),
        pytest.param(
            plan_of(FIRST, PRICED, Reduce("totals", "priced", (("n", "count(*)"),))),
            'operators.totals is new, and reads "priced": the results of an as-of join depend',
            id="a reduction of what has been",
        ),
        pytest.param(
            plan_of(
                FIRST,
                PRICED,
                outputs=(*plan_of(FIRST, PRICED).outputs, Output("m", "priced", "m")),
            ),
            'outputs.m shows other data of "priced", and the results of an as-of join depend',
            id="an output of what has been",
        ),
        pytest.param(
            plan_of(FIRST, PRICED, inputs=(INPUTS[0], replace(INPUTS[1], topics=("other",)))),
            "inputs.customers_in was changed: it reads another topic",
            id="another topic",
        ),
    ],
)
def test_all_else_may_not(new: Plan, reason: str) -> None:
    """The reason is told, by the name of what is at fault."""
    with pytest.raises(CheckpointError) as error:
        metadata_after(born(plan_of(FIRST, PRICED)), new)

    assert reason in error.value.message


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(
            plan_of(msgspec.structs.replace(FIRST, where=("o.ck = c.ck", "o.n > 0"))),
            id="a changed join",
        ),
        pytest.param(
            plan_of(FIRST, Reduce("totals", "first", (("n", "count(*)"),))),
            id="a reduction of what has been",
        ),
        pytest.param(
            plan_of(FIRST, outputs=(*plan_of(FIRST).outputs, Output("more", "first", "more"))),
            id="an output of what has been",
        ),
    ],
)
def test_what_a_delta_join_had_is_computed_once_more(new: Plan) -> None:
    """It is a function of what its inputs are now."""
    metadata_after(born(plan_of(FIRST)), new)

    edit = edit_to(born(plan_of(FIRST)), new)
    assert edit is not None
    assert edit.joins_before == ("first",)


def test_an_as_of_join_needs_what_its_left_has_been() -> None:
    """An arrangement has it, or the state of what the left is made of; of some inputs none has."""
    lone = AsOfJoin("lone", *PAIR, ("o.n = c.ck",), PRICED.select)
    edit = edit_to(born(plan_of(PRICED)), plan_of(PRICED, lone))
    assert edit is not None
    assert [*edit.filled_joins] == ["lone"]
    metadata_after(born(plan_of(PRICED)), plan_of(PRICED, lone))

    inputs = (replace(INPUTS[0], mode="append"), INPUTS[1])
    before, after = (
        Plan(
            "p",
            inputs,
            (Upsert("customers", "customers_in"), *joins),
            tuple(Output(o, o, o) for o in ("orders_in", *(join.name for join in joins))),
        )
        for joins in ((), (msgspec.structs.replace(lone, left=JoinInput("o", "orders_in")),))
    )
    with pytest.raises(CheckpointError, match='has all that its input "orders_in" was'):
        metadata_after(born(before), after)


LOCKED = msgspec.structs.replace(PRICED, retract="locked")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PRICED, msgspec.structs.replace(PRICED, on=("o.ck = c.ck", "o.n > 0"))),
        (PRICED, LOCKED),
        (LOCKED, msgspec.structs.replace(LOCKED, locked_by=("ck",))),
        (LOCKED, msgspec.structs.replace(LOCKED, locked_by=("ck", "n"))),
    ],
)
def test_an_as_of_join_that_changes_begins_anew(before: AsOfJoin, after: AsOfJoin) -> None:
    """What its rows have met depends on what it was: that comes back out of the topic."""
    assert plan_of(before).fingerprint() != plan_of(after).fingerprint()
    edit = edit_to(born(plan_of(before)), plan_of(after))
    assert edit is not None
    # So do its errors.
    assert edit.read_back == {"priced": "priced", "p.errors": "errors"}
    assert "priced@2" in edit.fresh
    metadata_after(born(plan_of(before)), plan_of(after))


def test_a_topic_does_not_come_back() -> None:
    """What it has would be taken for the new output's."""
    totals = Reduce("totals", "second", (("n", "count(*)"),))
    without = metadata_after(born(plan_of(FIRST, SECOND, totals)), plan_of(FIRST))

    with pytest.raises(CheckpointError) as error:
        metadata_after(without, plan_of(FIRST, SECOND, totals))

    for name in ("second", "totals"):
        assert f'outputs.{name} writes to topic "{name}"' in error.value.message
    anew = plan_of(FIRST, SECOND, totals)
    outputs = tuple(
        replace(o, topic=o.name + ".2") if o.name in ("second", "totals") else o
        for o in anew.outputs
    )
    going = with_checkpoint_names(without, replace(anew, outputs=outputs))
    assert {o.name for o in going.operators} >= {"second@2", "totals@2"}


def test_a_new_output_does_not_write_where_an_older_one_wrote() -> None:
    """Its topic would have both formats; in the same one it would be that output renamed."""
    shown = plan_of(FIRST, SECOND).outputs
    new = plan_of(SECOND, outputs=(*shown[:2], Output("second", "second", "first", "upsert")))

    with pytest.raises(
        CheckpointError, match='writes to topic "first", which has been the topic of "first"'
    ):
        metadata_after(born(plan_of(FIRST)), new)


def test_a_new_join_needs_what_waits_for_its_time() -> None:
    """Changes that are not due are held where they are arranged, and nowhere else."""
    columns = tuple(Column(name, "BIGINT") for name in "xyz")
    dated, now = (
        tuple(
            Input(name, (name,), mode="append", columns=columns, event_time=event_time)
            for name in "rst"
        )
        for event_time in (EventTime(clock="kafka"), None)
    )
    where = ("s.x = r.x", "s.z = r.z", "s.y = t.y", "r.z = t.x")

    def plans(inputs: tuple[Input, ...]) -> tuple[Plan, Plan]:
        used = tuple(JoinInput(source.name, source.name) for source in inputs)
        joins = [DeltaJoin(of, used, where, (("z", "s.z"),), "s.z") for of in ("old", "new")]
        outputs = [Output(join.name, join.name, join.name) for join in joins]
        both = Plan("p", inputs, tuple(joins), tuple(outputs))
        return replace(both, operators=both.operators[:1], outputs=both.outputs[:1]), both

    before, after = plans(now)
    assert metadata_after(born(before), after)

    before, after = plans(dated)
    with pytest.raises(CheckpointError, match='changes of "t" that are not due yet'):
        metadata_after(born(before), after)


def test_how_far_a_new_join_is_does_not_go_with_a_key() -> None:
    """A checkpoint that is rescaled has no join on its way, and what is left of one is let go."""
    store = MemoryStore()
    arrangement = Arrangement(MemoryStore(), Interval(3, 3), 3)
    Replay(store, "join", "second").take(ArrangementPast(arrangement, 3))

    assert list(parts.to_new_shards(store.scan(b""), lambda _: 0)) == []
    assert len(list(store.scan(b""))) == 1


LATE = EventTime(clock="kafka", lateness_ms=5_000, idle_ms=10_000)
SPELT = Linear(
    "large",
    "first",
    (
        steps.Sql(
            where=("n>1", "(n <> 7) -- not seven"),
            select=(("m", "n*2"),),
            key="n+0",
            valid_until="n::BIGINT",
        ),
        steps.Sql(flat_map=("x", "[m,2]"), diff="abs(m)", valid_from="m"),
    ),
)
OTHERWISE = Linear(
    "large",
    "first",
    (
        steps.Sql(
            where=("n > 1", "(n <> 7)"),
            select=(("m", '("n" * 2)'),),
            key="(n + 0)",
            valid_until="CAST(n AS BIGINT)",
        ),
        steps.Sql(flat_map=("x", "[m, 2]"), diff="abs( m )", valid_from="(m)"),
    ),
)
COUNTED = Reduce("counted", "first", (("n", "count( * )"), ("most", "max(n+1)")), "n  +  1")
COUNTED_OTHERWISE = Reduce(
    "counted", "first", (("n", "count(*)"), ("most", "max((n + 1))")), "n+1"
)
PRICED_OTHERWISE = AsOfJoin("priced", *PAIR, ("(o.ck=c.ck)",), (("n", 'o."n"'),))


def dated(*inputs: EventTime | None) -> tuple[Input, ...]:
    return tuple(
        replace(source, event_time=event_time)
        for source, event_time in zip(INPUTS, inputs, strict=True)
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(plan_of(FIRST, SPELT), plan_of(FIRST, OTHERWISE), id="SQL of steps"),
        pytest.param(
            plan_of(FIRST, COUNTED), plan_of(FIRST, COUNTED_OTHERWISE), id="SQL of a reduction"
        ),
        pytest.param(plan_of(PRICED), plan_of(PRICED_OTHERWISE), id="SQL of a join"),
        pytest.param(
            plan_of(FIRST, inputs=dated(LATE, LATE)),
            plan_of(FIRST, inputs=dated(msgspec.structs.replace(LATE, lateness_ms=1), LATE)),
            id="lateness",
        ),
        pytest.param(
            plan_of(FIRST, inputs=dated(LATE, LATE)),
            plan_of(FIRST, inputs=dated(LATE, msgspec.structs.replace(LATE, idle_ms=None))),
            id="idle",
        ),
        pytest.param(
            plan_of(FIRST),
            plan_of(FIRST, inputs=(replace(INPUTS[0], size=10), replace(INPUTS[1], size=9))),
            id="size",
        ),
        pytest.param(
            plan_of(FIRST, inputs=(INPUTS[0], replace(INPUTS[1], unique=(("ck",),)))),
            plan_of(FIRST),
            id="unique",
        ),
        pytest.param(
            plan_of(FIRST),
            plan_of(
                FIRST,
                inputs=(
                    replace(INPUTS[0], columns=(Column("ck", "int8"), INPUTS[0].columns[1])),
                    *INPUTS[1:],
                ),
            ),
            id="SQL of a type",
        ),
    ],
)
def test_what_computes_the_same_may_be_written_otherwise(old: Plan, new: Plan) -> None:
    """The checkpoint goes on, as it was made: its record and the names in its log stay."""
    metadata = born(old)

    assert metadata_after(metadata, new) == metadata
    going = with_checkpoint_names(metadata, new)
    assert (going.operators, going.fingerprint()) == (old.operators, old.fingerprint())
    for source, was, now in zip(going.inputs, old.inputs, new.inputs, strict=True):
        assert source == replace(was, event_time=now.event_time)


def selecting(*columns: Column) -> Plan:
    """A plan that reads two columns of its input and has no use for others."""
    return Plan(
        "p",
        (Input("in", ("in",), columns=(Column("a", "BIGINT"), Column("b", "BIGINT"), *columns)),),
        (Upsert("all", "in"), Linear("some", "all", (steps.select(a="a + b"),))),
        (Output("some", "some", "some"),),
    )


def test_a_column_that_nothing_reads_may_come_and_go() -> None:
    """It is not even decoded."""
    with_it = selecting(Column("c", "DECIMAL(9,2)"))

    for old, new in ((selecting(), with_it), (with_it, selecting())):
        metadata = born(old)
        assert metadata_after(metadata, new) == metadata
        assert with_checkpoint_names(metadata, new) == old


def test_a_column_more_of_rows_that_are_kept_is_read_again() -> None:
    """Rows that are kept whole would be read otherwise than they were."""
    whole = born(plan_of())
    more = replace(INPUTS[0], columns=(*INPUTS[0].columns, Column("c", "BIGINT")))
    found = with_checkpoint_names(whole, plan_of(inputs=(more, INPUTS[1])))

    assert [source.name for source in found.inputs] == ["orders_in@2", "customers_in"]
    assert read_again(recorded(whole), found) == ("orders_in@2",)


def test_what_is_read_again_is_so_right_after_a_rescaling() -> None:
    """The new layout has no batch in its log; the metadata has the last one."""
    whole = born(plan_of())
    more = replace(INPUTS[0], columns=(*INPUTS[0].columns, Column("c", "BIGINT")))
    wider = plan_of(inputs=(more, INPUTS[1]))
    ran = msgspec.structs.replace(whole.start, batch=3, upper=9, positions={"o": {0: 7}})
    rescaled = msgspec.structs.replace(whole, start=ran, epoch=1, first_batch=4)

    assert step_to(rescaled, wider, None).backfills
    assert step_to(rescaled, wider, None).plan.backfills == ("orders_in@2",)
    # Before the first batch there is nothing to catch up with.
    assert not step_to(whole, wider, None).backfills


def test_hints_that_joins_were_not_laid_out_by_are_told() -> None:
    """A checkpoint keeps the arrangements that it has."""
    sized = plan_of(FIRST, inputs=(INPUTS[0], replace(INPUTS[1], size=9)))

    assert ineffective_hints(born(plan_of(FIRST)), sized) == ["inputs.customers_in.size"]
    assert ineffective_hints(born(plan_of()), plan_of(inputs=sized.inputs)) == []


def test_a_refusal_says_all_that_starting_anew_takes() -> None:
    """Else the next start is refused for the next reason."""
    other = plan_of(FIRST, inputs=(INPUTS[0], replace(INPUTS[1], topics=("other",))))

    with pytest.raises(CheckpointError) as error:
        metadata_after(born(plan_of(FIRST)), other)

    assert error.value.hint is not None
    for needed in ("a new checkpoint", "a new pipeline name", "new output topics"):
        assert needed in error.value.hint


def test_an_edit_without_what_the_plan_of_before_names_says_what_is_missing() -> None:
    """Functions are looked up by name, in the code that there is now."""
    totals = ReduceRows("totals", "orders", function="edited_functions:most")
    before = born(plan_of(totals))
    (told,) = [o for o in before.plan["operators"] if o["name"] == "totals"]
    told["function"] = "edited_functions:gone"

    with pytest.raises(CheckpointError) as refused:
        metadata_after(before, plan_of())

    assert 'operators.totals.function: module "edited_functions" has no "gone"' in str(
        refused.value
    )
    assert "--once first" in (refused.value.hint or "")
    # The next start asks anew: it may be there then.
    told["function"] = "edited_functions:most"
    assert metadata_after(before, plan_of()).edits == 1
