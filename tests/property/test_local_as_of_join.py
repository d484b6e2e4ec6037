"""The local as-of join: each update with what its key had at its own time, by definition."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving.aligned import AlignedBatch, Follower, InMemory, TopicUpdate
from ikebana.serving.as_of_join import JoinedUpdate, as_of_join
from ikebana.serving.reads import LocalReads
from support.served_topics import MemoryTopics, caught_up, serving
from support.sums import summed

KEYS = st.sampled_from([b"a", b"b", b"c"])
UPDATES = st.lists(
    st.builds(
        KeyedUpdate,
        KEYS,
        st.sampled_from([b"1", b"2"]),
        st.integers(0, 11),
        st.sampled_from([1, 1, 2, -1]),
    ),
    max_size=15,
)


# Nothing can be read of the times before the first one.
ORDERS = UPDATES.map(lambda updates: [update for update in updates if update.time > 0])


def _followed(topics: MemoryTopics, resume: str | None) -> Iterator[AlignedBatch]:
    with Follower(
        topics.follow, {"orders": "diff"}, InMemory, resume=resume, wait=False
    ) as follower:
        yield from follower


def _on(update: TopicUpdate) -> bytes:
    assert update.key is not None
    return update.key


@given(ORDERS, UPDATES, st.sampled_from(["alt", "neu"]), st.booleans(), st.data())
def test_each_update_meets_the_values_of_its_time(
    orders: list[KeyedUpdate],
    prices: list[KeyedUpdate],
    at: str,
    outer: bool,  # noqa: FBT001 - drawn
    data: st.DataObject,
) -> None:
    """In batches of any size, and resumed by the token after any of them."""
    topics = MemoryTopics()
    for topic, updates in (("orders", orders), ("prices", prices)):
        step = data.draw(st.integers(1, 6), topic)
        for lower in range(0, 12, step):
            here = [tuple(u) for u in updates if lower <= u.time < lower + step]
            topics.close(topic, lower + step, *here)  # type: ignore[arg-type]
    found: list[JoinedUpdate] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(topics, Path(folder), "prices") as service,
    ):
        caught_up(service, topics, "prices")
        served = LocalReads(service)
        token = None
        while True:
            before = token
            for batch in as_of_join(
                _followed(topics, token), served, "prices", _on, at=at, outer=outer, timeout=20
            ):
                found += batch.updates
                token = batch.token
                if data.draw(st.booleans(), "stop here"):
                    break
            if token == before:
                break

    expected: Counter[tuple[KeyedUpdate, bytes | None]] = Counter()
    for order in orders:
        plain = order._replace(diff=1)
        some = summed(
            (price.value, price.diff)
            for price in prices
            if price.key == order.key and price.time <= order.time - (at == "neu")
        )
        for value, count in some.items():
            expected[plain, value] += order.diff * count
        if outer and not some:
            expected[plain, None] += order.diff
    got = summed(
        ((KeyedUpdate(left.key, left.value, left.time, 1), seen), diff)
        for left, seen, diff in found
    )
    assert got == summed(expected.items())
