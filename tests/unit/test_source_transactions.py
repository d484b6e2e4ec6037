"""The frontier of transactions, by examples: as captured, repeated, late, lost and missing."""

import json
from pathlib import Path

import pytest

from ikebana.codecs.debezium_position import Boundaries, Boundary, PositionReader, SourcePosition
from ikebana.errors import ConfigError
from ikebana.processor.base.rows import CountedChanges, Ended, TransactionsSeen
from ikebana.processor.planning.input_rows import collections_of
from ikebana.processor.topics.source_transactions import Transactions, Watch, advanced

FOLDER = Path(__file__).parents[1] / "golden" / "debezium_transactions"
READ = frozenset({"public.a", "public.b"})


def change(
    transaction: str, order: int, time: int, collection: str = "public.a"
) -> SourcePosition:
    return SourcePosition(0, 0, time, collection, transaction, order)


def end(transaction: str, lsn: int, **counts: int) -> Boundary:
    told = {f"public.{name}": count for name, count in counts.items()}
    return Boundary("END", transaction, lsn, 0, told)


def seen(state: Transactions, *read: SourcePosition | Boundary, of: str = "p") -> TransactionsSeen:
    watch = Watch(state, of, READ)
    for one in read:
        if isinstance(one, SourcePosition):
            watch.change(one)
        else:
            watch.boundary(one)
    return watch.seen()


def after(state: Transactions, *read: SourcePosition | Boundary) -> Transactions:
    """The state after a batch that has read this of one partition."""
    return advanced(state, [seen(state, *read)])


START = Transactions()


@pytest.mark.parametrize("server", ["typed", "plain"])
def test_captured_transactions_become_complete_one_after_the_other(server: str) -> None:
    """Changes first and ENDs one by one: each moves the frontier to where it ends."""
    positions, boundaries = PositionReader(), Boundaries()
    collections = collections_of(
        [f"{server}.public.accounts", f"{server}.public.entries"], f"{server}.transaction"
    )
    tasks: dict[str, Watch] = {}
    for name in ("public.accounts", "public.entries"):
        for message in json.loads((FOLDER / f"{server}.{name}.json").read_text()):
            partition = f"{name}-{message['partition']}"
            value = None if message["value"] is None else json.dumps(message["value"]).encode()
            if (position := positions.of(value)) is not None:
                tasks.setdefault(partition, Watch(START, partition, collections)).change(position)
    state = advanced(START, [task.seen() for task in tasks.values()])
    records = json.loads((FOLDER / f"{server}.transaction.json").read_text())
    ends = [
        found for each in records if (found := boundaries.of(json.dumps(each["value"]).encode()))
    ]
    frontiers = []
    for boundary in ends:
        watch = Watch(state, "transaction-0", collections)
        watch.boundary(boundary)
        state = advanced(state, [watch.seen()])
        frontiers.append(state.frontier)

    assert frontiers == [
        max((e.lsn for e in ends[: at + 1] if e.status == "END"), default=0)
        for at in range(len(ends))
    ]
    assert state == Transactions(ends[-1].lsn)


def test_a_transaction_is_complete_with_the_changes_of_all_partitions() -> None:
    """Of the collections that are read, and not before its END is known."""
    first = advanced(START, [seen(START, change("7", 1, 0), of="x")])
    told = advanced(first, [seen(first, end("7", 100, a=2, b=1, unread=9), of="t")])
    more = advanced(
        told,
        [
            seen(told, change("7", 3, 0), of="x"),
            seen(told, change("7", 2, 0, "public.b"), of="y"),
        ],
    )

    assert (first.frontier, told.frontier, more) == (0, 0, Transactions(100))
    assert told.missing() == {"public.a": 1, "public.b": 1}
    assert told.ended == (Ended("7", 100, {"public.a": 2, "public.b": 1}),)


@pytest.mark.parametrize("step", [1, -1])
def test_the_order_of_a_batch_s_tasks_is_nothing(step: int) -> None:
    """Even if two of them have read one partition, one after the other."""
    tasks = [
        seen(START, change("9", 1, 0), change("9", 2, 0)),
        seen(START, change("9", 5, 0)),
        seen(START, end("7", 100), of="t"),
        seen(START, end("8", 200, a=1), of="t"),
        seen(START, end("9", 300, a=4), of="t"),
    ]

    assert advanced(START, tasks[::step]) == Transactions(
        100,
        {"9": CountedChanges(0, {"public.a": 3}, {"p": 5})},
        (Ended("8", 200, {"public.a": 1}), Ended("9", 300, {"public.a": 4})),
    )


def test_a_complete_transaction_waits_for_those_before_it() -> None:
    """It is forgotten though: where it ends is remembered with the one before it."""
    state = after(START, end("7", 100, a=1), end("8", 200, a=1), end("9", 300))
    both = after(state, change("8", 1, 100))

    assert both == Transactions(0, {}, (Ended("7", 300, {"public.a": 1}),))
    assert after(both, change("7", 1, 0)) == Transactions(300)


def test_what_a_restarted_connector_sends_again_is_not_counted() -> None:
    """It goes on from the last flushed offset, within the transaction, to the same partition."""
    state = after(START, *(change("7", order, 0) for order in (1, 2, 4)), end("7", 100, a=5))
    again = after(state, *(change("7", order, 0) for order in (2, 4)))

    assert again.missing() == state.missing() == {"public.a": 2}
    assert after(again, change("7", 4, 0), change("7", 5, 0), change("7", 6, 0)).frontier == 100


def test_more_changes_than_counted_are_complete_too() -> None:
    """As those without an order are, which cannot be told from repeats."""
    one = SourcePosition(0, 0, 0, "public.a", "7")
    state = after(START, one, one, one, end("7", 100, a=2))

    assert state == Transactions(100)


def test_a_repeated_end_says_nothing_new() -> None:
    """Nor do the changes that were sent again with it."""
    state = after(START, change("7", 1, 0), end("7", 100, a=1), end("8", 200, a=1))
    again = after(state, change("7", 1, 0), end("7", 100, a=1), end("8", 200, a=1))

    assert again == state == Transactions(100, {}, (Ended("8", 200, {"public.a": 1}),))


def test_a_missing_end_holds_nothing_up() -> None:
    """ENDs come in order, so after a later one it is lost; its changes count as read."""
    state = after(START, change("7", 1, 0), change("8", 1, 50), end("9", 300, a=1))
    passed = after(state, change("9", 1, 200))

    assert state.frontier == 0
    assert passed.frontier == 300


def test_an_unfinished_transaction_is_not_passed() -> None:
    """Without an END, nothing tells whether there is more of it to come."""
    state = after(START, end("6", 50), change("7", 1, 50))

    assert state.frontier == 50
    assert after(state, change("7", 2, 50)).frontier == 50


def test_a_late_transaction_is_complete_all_the_same() -> None:
    """A connector that was made anew gives its first transaction the time 0."""
    state = after(after(START, end("6", 50)), change("7", 1, 0))

    assert after(state, end("7", 100, a=2)).missing() == {"public.a": 1}
    assert after(state, change("7", 2, 0), end("7", 100, a=2)) == Transactions(100)


def test_a_transaction_that_a_restart_gives_another_time_is_complete() -> None:
    """The first one after a snapshot, if the connector restarts within: as it was observed."""
    state = after(START, change("749", 1, 0), change("749", 2, 24_336_160))

    assert after(state, end("749", 37_876_672, a=2)) == Transactions(37_876_672)


def test_only_so_many_late_transactions_are_remembered() -> None:
    """The latest ones; what is open still is remembered in any case."""
    state = after(START, end("1", 1000), end("open", 2000, a=2))
    late = [change(f"late {n}", 1, n) for n in range(500)]
    state = after(state, change("open", 1, 0), *late, change("new", 1, 2000))

    assert state.counted.keys() == {"open", "new", *(f"late {n}" for n in range(400, 500))}
    assert state.counted["new"] == CountedChanges(2000, {"public.a": 1}, {"p": 1})


def test_what_is_in_no_transaction_counts_for_none() -> None:
    """Rows of snapshots, and all changes if the connector provides no metadata."""
    row = SourcePosition(0, 5, 0, "public.a", snapshot=True)

    assert after(START, row) == START


def test_names_are_compared_as_topics_spell_them() -> None:
    """END records have the names of the database."""
    read = collections_of(["shop.public.my_table"], "shop.transaction")
    watch = Watch(START, "t", read)
    watch.boundary(Boundary("END", "7", 100, 0, {"public.my table": 1, "public.other": 1}))

    assert watch.seen().ends == (Ended("7", 100, {"public.my table": 1}),)


@pytest.mark.parametrize(
    ("topics", "transaction_topic", "reason"),
    [
        pytest.param(["orders"], "shop.transaction", 'topic "orders"', id="routed"),
        pytest.param(["shop."], "shop.transaction", 'topic "shop."', id="nothing but the prefix"),
        pytest.param(["shop.orders"], "commits", 'topic "commits"', id="renamed"),
        pytest.param([".orders"], ".transaction", 'topic ".transaction"', id="no prefix"),
    ],
)
def test_topics_with_other_names_are_refused(
    topics: list[str], transaction_topic: str, reason: str
) -> None:
    """Nothing would tell whether an END waits for them."""
    with pytest.raises(ConfigError, match=reason):
        collections_of(topics, transaction_topic)
