"""The frontier of transactions, whatever is read of which partition when: by definition.

The definition knows all records that have been read, one by one, and every transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.debezium_position import Boundary, SourcePosition
from ikebana.processor.base.rows import TransactionsSeen
from ikebana.processor.topics.source_transactions import Transactions, Watch, advanced
from support.strategies import unhurried

READ = frozenset({"public.a", "public.b"})
COLLECTIONS = ("public.a", "public.b", "public.unread")
ENDS = ("transaction", 0)

Where = tuple[str, int]
Record = SourcePosition | Boundary
# A record that is sent, again or for the first time, and to where.
Sent = tuple[Where, Record]


@dataclass(frozen=True)
class Source:
    """Transactions as they committed, and what a connector sends of them, in order.

    `incomplete_image` are those whose END is lost.
    """

    ends: tuple[Boundary, ...]
    incomplete_image: frozenset[str]
    sent: tuple[Sent, ...]

    def logs(self) -> dict[Where, list[Record]]:
        """What is in each partition that is read."""
        found: dict[Where, list[Record]] = {ENDS: []}
        for where, record in self.sent:
            if where == ENDS or where[0] in READ:
                found.setdefault(where, []).append(record)
        return found


@st.composite
def sources(draw: st.DrawFn, *, faults: bool) -> Source:
    """A few transactions; with faults, ENDs are lost, LSNs forgotten, and runs sent again."""
    ends: list[Boundary] = []
    sent: list[Sent] = []
    lsn = 0
    for number in range(draw(st.integers(1, 6))):
        # Ids grow as transactions begin, which is not how they commit.
        name = str(number ^ 1)
        time = 0 if faults and draw(st.integers(0, 5)) == 0 else lsn
        places = draw(
            st.lists(st.tuples(st.sampled_from(COLLECTIONS), st.integers(0, 1)), max_size=6)
        )
        sent.append((ENDS, Boundary("BEGIN", name, lsn + 1, 0, {})))
        for order, where in enumerate(places, 1):
            sent.append(
                (where, SourcePosition(0, draw(st.integers(1, 99)), time, where[0], name, order))
            )
        if draw(st.booleans()):
            # A row of no transaction, as an incremental snapshot sends them.
            sent.append((("public.a", 0), SourcePosition(0, lsn, lsn, "public.a", snapshot=True)))
        lsn += draw(st.integers(1, 50))
        counts = {each: [c for c, _ in places].count(each) for each in COLLECTIONS}
        ends.append(Boundary("END", name, lsn, 0, {c: n for c, n in counts.items() if n}))
        sent.append((ENDS, ends[-1]))
    incomplete_image = frozenset[str]()
    if faults:
        for _ in range(draw(st.integers(0, 2))):
            # A restarted connector goes on from an earlier place.
            until = draw(st.integers(0, len(sent)))
            since = draw(st.integers(0, until))
            sent[until:until] = sent[since:until]
        incomplete_image = frozenset(
            end.transaction for end in ends if draw(st.integers(0, 5)) == 0
        )
        sent = [
            (where, record)
            for where, record in sent
            if not (isinstance(record, Boundary) and record.status == "END")
            or record.transaction not in incomplete_image
        ]
    return Source(tuple(ends), incomplete_image, tuple(sent))


def by_definition(source: Source, read: Sequence[Record]) -> int:
    """Where the last of the transactions ends that are complete as are all before it."""
    changes = {
        (each.transaction, each.order, each.collection)
        for each in read
        if isinstance(each, SourcePosition) and each.transaction is not None
    }
    told = {each.lsn for each in read if isinstance(each, Boundary) and each.status == "END"}
    frontier = 0
    for end in source.ends:
        if end.transaction in source.incomplete_image:
            continue
        own = [collection for name, _, collection in changes if name == end.transaction]
        wanted = {name: count for name, count in end.counts.items() if name in READ}
        if end.lsn not in told or {name: own.count(name) for name in wanted} != wanted:
            break
        frontier = end.lsn
    return frontier


def watched(state: Transactions, where: Where, records: Sequence[Record]) -> TransactionsSeen:
    """What a task sums up, as the commit record carries it."""
    watch = Watch(state, f"{where[0]}-{where[1]}", READ)
    for record in records:
        if isinstance(record, SourcePosition):
            watch.change(record)
        else:
            watch.boundary(record)
    return msgspec.json.decode(msgspec.json.encode(watch.seen()), type=TransactionsSeen)


def read_all(source: Source, data: st.DataObject) -> list[tuple[Transactions, list[Record]]]:
    """Each batch's state and all that had been read, until everything has."""
    logs, state, read = source.logs(), Transactions(), list[Record]()
    at = dict.fromkeys(logs, 0)
    found: list[tuple[Transactions, list[Record]]] = []
    while any(at[where] < len(log) for where, log in logs.items()):
        seen = []
        for where, log in logs.items():
            # Each partition at its own pace.
            pace = (
                data.draw(st.sampled_from([len(log), 0, 1, 2, 5])) if len(found) < 9 else len(log)
            )
            taken = log[at[where] : at[where] + pace]
            at[where] += len(taken)
            read += taken
            seen.append(watched(state, where, taken))
        if data.draw(st.booleans()):
            seen.reverse()
        logged = msgspec.json.encode(advanced(state, seen))
        state = msgspec.json.decode(logged, type=Transactions)
        found.append((state, list(read)))
    return found


@unhurried
@given(sources(faults=True), st.data())
def test_the_frontier_is_as_defined(source: Source, data: st.DataObject) -> None:
    """After each batch, also where a connector restarts, loses ENDs or forgets LSNs."""
    for state, read in read_all(source, data):
        assert state.frontier == by_definition(source, read)


@unhurried
@given(sources(faults=True), st.data())
def test_the_frontier_never_goes_back_and_reaches_the_end(
    source: Source, data: st.DataObject
) -> None:
    """The last END is the end, even if ENDs before it are lost."""
    batches = read_all(source, data)
    frontiers = [0, *(state.frontier for state, _ in batches)]
    told = [end.lsn for end in source.ends if end.transaction not in source.incomplete_image]

    assert frontiers == sorted(frontiers)
    assert frontiers[-1] == max(told, default=0)
    assert all(state.missing() == {} for state, _ in batches[-1:])


@unhurried
@given(sources(faults=False), st.data())
def test_no_change_is_passed_before_its_transaction_is_complete(
    source: Source, data: st.DataObject
) -> None:
    """R9. All that has a time before the frontier has been read, and nothing of it is late."""
    changes = [record for _, log in source.logs().items() for record in log]
    for state, read in read_all(source, data):
        left = [each for each in changes if isinstance(each, SourcePosition) and each not in read]

        assert all(each.snapshot or (each.time or 0) >= state.frontier for each in left)


@unhurried
@given(sources(faults=False), st.data())
def test_nothing_is_remembered_of_what_is_over(source: Source, data: st.DataObject) -> None:
    """The state has only transactions that are open, and in the end none."""
    batches = read_all(source, data)
    for state, _ in batches:
        passed = {end.transaction for end in source.ends if end.lsn <= state.frontier}

        assert not passed & state.counted.keys()
        assert all(end.transaction not in passed for end in state.ended)
    assert not batches or batches[-1][0] == Transactions(source.ends[-1].lsn)
