"""What `ikebana explain` says that a change comes to, by hand for small plans."""

from random import Random

import pytest

from ikebana import (
    Column,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    Reduce,
    Upsert,
    evaluate,
    steps,
)
from ikebana.processor.explain.estimates import Work, estimates
from ikebana.processor.planning import planner
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from support.sql_oracle import plan_of

NUMBERS = tuple(Column(name, "BIGINT") for name in ("id", "customer", "amount"))
ORDERS = Input("orders", ("orders",), columns=NUMBERS, size=1_000)
CUSTOMERS = Input("customers", ("customers",), columns=(Column("city", "VARCHAR"),), size=10)
CURRENT, CUSTOMER = Upsert("order", "orders"), Upsert("customer", "customers")


def works(
    *operators: Operator, inputs: tuple[Input, ...] = (ORDERS,), shows: str
) -> dict[str, Work]:
    output = Output("out", shows, "out")
    plan = checked(Plan("p", inputs, operators, (output,)))
    return {work.input: work for work in estimates(plan, planner.physical(plan))}


def counts(work: Work) -> tuple[float, float, float, float]:
    """Rows kept, sent, met and written."""
    return work.state, work.sent, work.met, work.written


def test_an_upsert_writes_what_was_and_what_is() -> None:
    """It keeps one row a change."""
    assert counts(works(CURRENT, shows="order")["orders"]) == (1, 0, 0, 2)


def test_a_reduction_by_another_key_is_reached_by_both_updates() -> None:
    """Each is sent to the shard of its group, and changes what is kept there."""
    by_customer = Reduce("totals", "order", (("n", "count(*)"),), by="customer")

    assert counts(works(CURRENT, by_customer, shows="totals")["orders"]) == (3, 2, 0, 2)


def test_a_lookup_meets_as_many_rows_as_the_sizes_say() -> None:
    """A customer has a hundred orders, an order one customer."""
    join = DeltaJoin(
        "placed",
        (JoinInput("o", "order"), JoinInput("c", "customer")),
        where=("o.customer = c.key::BIGINT",),
        select=(("city", "c.city"), ("amount", "o.amount")),
        key="o.key",
    )
    found = works(CURRENT, CUSTOMER, join, inputs=(ORDERS, CUSTOMERS), shows="placed")

    assert found["customers"].met == 2 * 100
    assert found["customers"].written == 2 * 100
    assert found["orders"].met == 2
    assert found["orders"].written == 2
    assert found["customers"].cpu_us > 10 * found["orders"].cpu_us


def test_every_output_and_pass_takes_time() -> None:
    """A condition is a pass over both updates, and holds for half; two outputs write all twice."""
    large = Linear("large", "order", (steps.Sql(where=("amount > 5",)),))
    one = works(CURRENT, shows="order")["orders"]
    filtered = works(CURRENT, large, shows="large")["orders"]
    output = [Output(name, "order", name) for name in ("a", "b")]
    plan = checked(Plan("p", (ORDERS,), (CURRENT,), tuple(output)))
    (twice,) = estimates(plan, planner.physical(plan))

    assert (one.written, filtered.written, twice.written) == (2, 1, 4)
    assert filtered.state == one.state
    assert twice.cpu_us - one.cpu_us > one.cpu_us - filtered.cpu_us > 0


# A row of 100 moves and gets another value: how far away these are decides what is touched.
NUMBERED = "PARTITION BY p ORDER BY o"


@pytest.mark.parametrize(
    "text",
    [
        f"row_number() OVER ({NUMBERED})",
        f"ntile(4) OVER ({NUMBERED})",
        f"lead(x, 3) OVER ({NUMBERED})",
        f"sum(x) OVER ({NUMBERED})",
        "sum(x) OVER (PARTITION BY p)",
        f"avg(x) OVER ({NUMBERED} ROWS BETWEEN 3 PRECEDING AND 3 FOLLOWING)",
        f"min(x) OVER ({NUMBERED} ROWS 6 PRECEDING)",
        f"max(x) OVER ({NUMBERED})",
        "max(x) OVER (PARTITION BY p)",
        f"first_value(x) OVER ({NUMBERED})",
        f"last_value(x) OVER ({NUMBERED})",
        f"nth_value(x, 2) OVER ({NUMBERED} ROWS 6 PRECEDING)",
        f"rank(ORDER BY x) OVER ({NUMBERED})",
        f"rank(ORDER BY x) OVER ({NUMBERED} ROWS 6 PRECEDING)",
        f"lag(x, x % 3) OVER ({NUMBERED})",
    ],
)
def test_what_window_functions_write_is_estimated_within_two(text: str) -> None:
    assert 0.5 < estimated_of_written(f"SELECT p, o, {text} AS w FROM t") < 2


@pytest.mark.parametrize("most", [5, 20])
def test_what_a_bounded_rank_writes_is_estimated_within_two(most: int) -> None:
    """Few changes are among the first rows."""
    inner = f"SELECT p, o, rank() OVER ({NUMBERED}) AS w FROM t"

    assert 0.5 < estimated_of_written(f"SELECT * FROM ({inner}) WHERE w <= {most}") < 2


def estimated_of_written(query: str) -> float:
    """What is estimated that a change writes, as a share of what 100 random ones wrote."""
    plan = plan_of({"t": dict.fromkeys("pox", "BIGINT")}, {"v": query})
    draw = Random(2)

    def row(key: int) -> dict[str, int]:
        return {"p": key // 100, "o": draw.randrange(10_000), "x": draw.randrange(10_000)}

    records = [(key, row(key), 0) for key in range(300)]
    for time in range(1, 101):
        key = draw.randrange(300)
        records.append((key, row(key), time))
    updates = evaluate(plan, {"t_changes": records})["v"]
    (work,) = estimates(plan, planner.physical(plan))
    return work.written / (sum(update.time > 0 for update in updates) / 100)
