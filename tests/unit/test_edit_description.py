"""What an edit does to each part, as a value: tables of plans before and after."""

import pytest

from ikebana import Plan
from ikebana.processor.base.transition import Phase, Transition
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, metadata_of
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.edit_description import EditDescription, PartChange, Rescaled
from ikebana.processor.checkpoint.next_step import Desired, Observed
from ikebana.processor.explain.text import edit_lines
from ikebana.processor.topics.source_offset import SourceOffset
from support.edited_shops import FIRST, JOINED, plan_of


def born(plan: Plan, shards: int = 2) -> CheckpointMetadata:
    start = SourceOffset(-1, 0, 0, {}, plan.fingerprint())
    return metadata_of("/tmp/nowhere", plan, shards, start)


def to(
    metadata: CheckpointMetadata, plan: Plan, shards: int = 2, logged: Logged | None = None
) -> EditDescription:
    observed = Observed(metadata, logged or Logged(None, -1, -1))
    return describe("./c", observed, Desired(plan, shards))


def edit(before: str, after: str) -> EditDescription:
    return to(born(plan_of(before)), plan_of(after))


def changed(found: EditDescription) -> dict[tuple[str, str], tuple[str, str]]:
    """By kind and name what does not stay: what becomes of it, and what its topic gets."""
    return {
        (part.kind, part.name): (part.does, part.shows)
        for part in found.parts
        if part.does != "stays"
    }


def part(found: EditDescription, kind: str, name: str) -> PartChange:
    return next(each for each in found.parts if (each.kind, each.name) == (kind, name))


def origins(found: EditDescription, kind: str, name: str) -> list[tuple[str, str]]:
    return [(each.kind, each.name) for each in part(found, kind, name).filled_from]


ORDERS_BY_CUSTOMER = "order(customer)"
CUSTOMERS_BY_KEY = "customer(CAST(key AS BIGINT))"
CASES = [
    pytest.param(FIRST, FIRST, {}, id="nothing"),
    pytest.param(
        FIRST,
        FIRST.replace("quantity > 3", "(quantity>3)"),
        {},
        id="another spelling",
    ),
    pytest.param(
        FIRST,
        FIRST.replace("quantity > 3", "quantity > 5"),
        {
            ("operator", "large"): ("replaced", "nothing"),
            ("operator", "totals"): ("replaced", "nothing"),
            ("output", "large"): ("replaced", "difference"),
            ("output", "totals"): ("replaced", "difference"),
        },
        id="a changed filter, and what is behind it",
    ),
    pytest.param(
        FIRST,
        FIRST.replace("n: count(*)", "n: count(*), q: sum(quantity)"),
        {
            ("operator", "totals"): ("replaced", "nothing"),
            ("output", "totals"): ("replaced", "difference"),
        },
        id="another aggregate",
    ),
    pytest.param(
        FIRST,
        FIRST + "  again: {from: large, topic: again}\n",
        {("output", "again"): ("new", "everything")},
        id="a new output",
    ),
    pytest.param(
        FIRST,
        FIRST.replace("  large: {from: large, topic: large}\n", ""),
        {("output", "large"): ("dropped", "end")},
        id="an output that ends",
    ),
    pytest.param(
        FIRST,
        FIRST.replace("large: {linear", "big: {linear")
        .replace("from: large", "from: big")
        .replace("reduce: large", "reduce: big"),
        {
            ("operator", "big"): ("renamed", "nothing"),
            ("operator", "totals"): ("replaced", "nothing"),
            ("output", "totals"): ("replaced", "difference"),
        },
        id="a renamed filter",
    ),
    pytest.param(
        FIRST,
        JOINED,
        {
            ("input", "customers"): ("new", "nothing"),
            ("operator", "customer"): ("new", "nothing"),
            ("operator", "named"): ("new", "nothing"),
            ("arrangement", ORDERS_BY_CUSTOMER): ("new", "nothing"),
            ("arrangement", CUSTOMERS_BY_KEY): ("new", "nothing"),
            ("output", "named"): ("new", "everything"),
        },
        id="an input that is joined",
    ),
    pytest.param(
        JOINED,
        FIRST,
        {
            ("input", "customers"): ("dropped", "nothing"),
            ("operator", "customer"): ("dropped", "nothing"),
            ("operator", "named"): ("dropped", "nothing"),
            ("arrangement", ORDERS_BY_CUSTOMER): ("dropped", "nothing"),
            ("arrangement", CUSTOMERS_BY_KEY): ("dropped", "nothing"),
            ("output", "named"): ("dropped", "end"),
            ("output", "errors"): ("replaced", "difference"),
        },
        id="a join that goes with its input",
    ),
]


@pytest.mark.parametrize(("before", "after", "expected"), CASES)
def test_an_edit_is_told_part_by_part(
    before: str, after: str, expected: dict[tuple[str, str], tuple[str, str]]
) -> None:
    """What is not named stays."""
    found = edit(before, after)

    assert changed(found) == expected
    assert found.result == ("changes" if expected else "nothing")
    assert bool(found.gist()) == bool(expected)
    assert len(found.gist()) <= 5


RENAMED = (
    FIRST.replace("order: {upsert", "sale: {upsert")
    .replace("linear: order", "linear: sale")
    .replace("  large: {from", "  big: {from")
)


def test_what_has_another_name_alone_stays() -> None:
    """The checkpoint goes on with the names that it has, which are told."""
    found = edit(FIRST, RENAMED)

    assert found.result == "nothing"
    assert changed(found) == {}
    assert part(found, "operator", "sale").was == "order"
    assert part(found, "output", "big").was == "large"


def test_what_has_another_name_is_told_with_what_changes() -> None:
    """It is the one that it was, and what fills others is called as the file has it."""
    found = edit(FIRST, RENAMED.replace("n: count(*)", "n: count(*), q: sum(quantity)"))

    assert changed(found) == {
        ("operator", "sale"): ("renamed", "nothing"),
        ("operator", "totals"): ("replaced", "nothing"),
        ("output", "big"): ("renamed", "nothing"),
        ("output", "totals"): ("replaced", "difference"),
    }
    assert origins(found, "operator", "totals") == [("state", "sale")]


def test_what_begins_says_where_it_gets_what_there_was() -> None:
    """A topic, the state of an operator, or an arrangement."""
    found = edit(FIRST, JOINED)

    assert origins(found, "input", "customers") == [("topic", "customers")]
    assert origins(found, "operator", "customer") == [("topic", "customers")]
    assert origins(found, "arrangement", ORDERS_BY_CUSTOMER) == [("state", "order")]
    assert origins(found, "arrangement", CUSTOMERS_BY_KEY) == [("operator", "customer")]
    assert origins(found, "operator", "named") == [
        ("arrangement", ORDERS_BY_CUSTOMER),
        ("arrangement", CUSTOMERS_BY_KEY),
    ]


def test_an_output_that_gets_a_difference_says_of_what() -> None:
    """What ends is taken back, and what begins is put in its place."""
    found = edit(FIRST, FIRST.replace("count(*)", "sum(quantity)"))

    assert origins(found, "output", "totals") == [("state", "totals"), ("operator", "totals")]
    assert part(found, "operator", "totals").why == "since it is defined otherwise"


def test_an_output_of_a_join_says_that_results_are_computed_once_more() -> None:
    """Those of before are no state; what stays of a join is made so for a new output, too."""
    wider = JOINED.replace("product: o.product,", "product: o.product, q: o.quantity,")
    found = edit(JOINED, wider)

    assert found.result == "changes"
    assert changed(found) == {
        ("operator", "named"): ("replaced", "nothing"),
        ("output", "named"): ("replaced", "difference"),
    }
    assert origins(found, "output", "named") == [("join", "named"), ("operator", "named")]
    told = " ".join(" ".join(line.text.split()) for line in edit_lines(found))
    assert "made of the results of named, computed once more and the new operator named" in told
    more = edit(JOINED, JOINED + "  more: {from: named, topic: more}\n")
    assert origins(more, "output", "more") == [("join", "named")]


def test_what_reads_another_collection_says_which() -> None:
    """It is not the user's change of it, but one before it."""
    found = edit(FIRST, FIRST.replace("quantity > 3", "quantity > 5"))

    why = part(found, "operator", "totals").why
    assert why == "since it reads large, which is another collection now"


def test_what_is_kept_of_rows_is_told_where_less_would_do() -> None:
    """The state goes on with the columns that it has."""
    narrow = FIRST.replace("order, where: quantity > 3", "order, select: [product, quantity]")
    narrower = narrow.replace("select: [product, quantity]", "select: [product]").replace(
        "reduce: large", "reduce: order"
    )
    found = edit(narrow.replace("reduce: large", "reduce: order"), narrower)

    assert found.result == "changes"
    assert part(found, "input", "orders").does == "stays"
    assert part(found, "input", "orders").why == (
        "is read as before, with the columns product, quantity"
    )


AS_OF = JOINED.replace("delta_join", "as_of_join").replace("where: [o.", "on: [o.")


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        (
            FIRST,
            FIRST.replace("topic: orders\n", "topic: others\n"),
            ["inputs.orders"],
        ),
        (
            AS_OF,
            AS_OF + "  more: {from: named, topic: more}\n",
            ["outputs.more"],
        ),
    ],
)
def test_what_cannot_be_is_told_with_its_path_and_a_remedy(
    before: str, after: str, paths: list[str]
) -> None:
    """The part is marked, and nothing is said to come of it."""
    found = edit(before, after)

    assert found.result == "refused"
    assert [refused.path for refused in found.refused] == paths
    for refused in found.refused:
        assert refused.reason
        assert f"eave {refused.path} as it was, or start with a new" in refused.remedy
        section, _, name = refused.path.partition(".")
        assert part(found, section.rstrip("s"), name).does == "refused"
    (told,) = found.gist()
    assert told.startswith(f"the plan is not the checkpoint's, and is refused: {paths[0]} ")


def test_another_number_of_shards_is_told_with_what_changes() -> None:
    """It comes first."""
    found = to(born(plan_of(FIRST), 3), plan_of(JOINED))

    assert found.rescaled == Rescaled(3, 2)
    assert found.result == "changes"
    assert found.gist()[1] == "the state is rewritten for 2 shards, from 3"
    assert found.counts["new"] == 6


def test_another_number_of_shards_alone_is_a_change() -> None:
    found = to(born(plan_of(FIRST), 3), plan_of(FIRST), 1)

    assert found.result == "changes"
    assert found.gist() == [
        "the plan stays, the number of shards changes",
        "the state is rewritten for 1 shard, from 3",
    ]
    assert [line.text for line in edit_lines(found)][-4:] == [
        "before that",
        "  the state is rewritten for 1 shard, from 3",
        "",
        "nothing else changes",
    ]


def test_without_a_checkpoint_all_is_new() -> None:
    """Also where the pipeline reads only what comes."""
    plan = plan_of(JOINED.replace("{topic: customers,", "{topic: customers, start: latest,"))
    found = describe("./c", None, Desired(plan, 2))

    assert found.result == "changes"
    assert found.counts == {"new": 12}
    assert part(found, "input", "customers").why == '"customers" is read from its end on'
    assert origins(found, "input", "customers") == []
    assert found.gist() == []


FILLS = Transition(1, 9, Phase.FILL)
ON_THEIR_WAY = "updates are on their way between operators after batch 4"


@pytest.mark.parametrize(
    ("offset", "committed", "told"),
    [
        pytest.param({}, 3, ["batch 4 is unfinished"], id="unfinished"),
        pytest.param(
            {"frontiers": {"order": 9, "totals": 5}},
            4,
            [ON_THEIR_WAY],
            id="on their way",
        ),
        pytest.param(
            {"frontiers": {"order": 9, "totals": 9}, "transition": FILLS},
            3,
            ["batch 4 is unfinished", ON_THEIR_WAY],
            id="in the middle of an edit",
        ),
    ],
)
def test_what_is_on_its_way_is_finished_before_another_plan_and_no_other(
    offset: dict[str, object], committed: int, told: list[str]
) -> None:
    """As a start does."""
    plan = plan_of(FIRST)
    metadata = born(plan)
    last = SourceOffset(4, 5, 9, {}, plan.fingerprint(), **offset)  # type: ignore[arg-type]
    logged = Logged(last, 4, committed)

    found = to(metadata, plan_of(JOINED), logged=logged)

    assert found.result == "changes"
    words = f"{' and '.join(told)}: finished under the plan of before first"
    if committed < 4:
        words += ", or dropped if no shard has written it"
    assert found.gist()[1] == words
    assert found.frontier == 9
    same = to(metadata, plan, logged=logged)
    assert (same.result, same.finishes) == ("nothing", None)
