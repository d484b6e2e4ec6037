"""Topics followed together: each update once, at a frontier that all topics have reached."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import ConfigError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kafka.following import ClosedTimes, Piece, Resume
from ikebana.serving.aligned import AlignedBatch, Follower, InMemory
from support.served_collections import Batch, Oracle, batches

FORMATS = {"left": "diff", "right": "diff"}


class _InMemory:
    """A topic whose batches are there from the beginning, a few at each call."""

    def __init__(self, topic: str, batches: list[Batch], resume: Resume | None) -> None:
        self.topic = topic
        self._left = list(enumerate(batches))
        self._from = None if resume is None else resume.upper
        if resume is not None and resume.place is not None:
            self._left = self._left[int(resume.place) + 1 :]

    def closed(self) -> Iterator[ClosedTimes]:
        while self._left:
            number, (lower, upper, updates) = self._left.pop(0)
            if self._from is not None:
                if upper <= self._from:
                    continue
                updates = [update for update in updates if update.time >= self._from]
                lower = max(lower, self._from)
            yield ClosedTimes(lower, upper, updates, str(number))
            if number % 2:
                return

    def pieces(self) -> Iterator[Piece | ClosedTimes]:
        return self.closed()

    def horizon(self) -> int | None:
        return None

    def behind(self) -> int:
        return len(self._left)

    def close(self) -> None:
        pass


def _followed(given: Mapping[str, list[Batch]], token: str | None) -> Iterator[AlignedBatch]:
    def open_topic(topic: str, _: str, resume: Resume | None) -> _InMemory:
        return _InMemory(topic, given[topic], resume)

    # Without waiting, an iteration ends when one topic has nothing at this moment.
    for _ in range(20):
        with Follower(open_topic, FORMATS, InMemory, resume=token, wait=False) as follower:
            # Before its first batch a follower has no token, and reads on.
            for _ in range(20 if token is None else 1):
                for batch in follower:
                    yield batch
                    token = batch.token


@given(batches(), batches(), st.data())
def test_each_update_is_given_once_with_all_others_of_its_time(
    left: list[Batch], right: list[Batch], data: st.DataObject
) -> None:
    """Wherever a reader stops, and whatever the batches of the topics are."""
    given_ = {"left": left, "right": right}
    found: list[AlignedBatch] = []
    token = None
    while True:
        before = len(found)
        for batch in _followed(given_, token):
            found.append(batch)
            token = batch.token
            if data.draw(st.booleans(), "stop here"):
                break
        if len(found) == before:
            break
    frontier = min(left[-1].upper, right[-1].upper)
    begin = max(left[0].lower, right[0].lower)
    if frontier <= begin:
        # Where one of them begins, the other one has no closed time yet.
        assert found == []
        return
    taken = [update for batch in found for update in batch.updates]
    for topic, written in given_.items():
        expected = [u for batch in written for u in batch.updates if u.time < frontier]
        got = [tuple(update[1:]) for update in taken if update.topic == topic]
        assert sorted(map(repr, got)) == sorted(repr(tuple(update)) for update in expected)
    assert found[0].lower == begin
    assert found[-1].upper == frontier
    for one, other in pairwise(found):
        assert one.upper == other.lower < other.upper
    for batch in found[1:]:
        assert all(batch.lower <= update.time < batch.upper for update in batch.updates)
    for batch in found:
        times = [update.time for update in batch.updates]
        assert times == sorted(times)


@given(batches())
def test_a_topic_adds_up_to_its_collection(written: list[Batch]) -> None:
    """At the upper of every batch."""
    oracle, whole = Oracle(), Oracle()
    for batch in written:
        whole.add(batch.updates)
    for found in _followed({"left": written, "right": [Batch(-9, 10**6, [])]}, None):
        oracle.add([KeyedUpdate(*update[1:]) for update in found.updates])
        assert oracle.collection(found.upper) == whole.collection(found.upper - 1)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "the token cannot be read"),
        ('{"upper":3}', "the token cannot be read"),
        ('{"upper":3,"places":{"left":["diff","0"]}}', r"the token is of left \(diff\)"),
        (
            '{"upper":3,"places":{"left":["diff","0"],"right":["upsert","0"]}}',
            r"the token is of left \(diff\), right \(upsert\)",
        ),
    ],
)
def test_a_token_of_something_else_is_refused(token: str, reason: str) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match=reason):
        next(_followed({"left": [], "right": []}, token))
