"""What `ikebana state` says: of what an arrangement is, and what is in an upsert."""

from ikebana import DeltaJoin, Input, JoinInput, Output, Plan, Upsert
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import Upserts
from ikebana.processor.checkpoint.checkpoint import metadata_of
from ikebana.processor.cli.state import _lines, arrangements_in
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.kernels import upsert
from ikebana.processor.kernels.upsert import UpsertArrangement
from ikebana.processor.topics.source_offset import SourceOffset

JOIN = DeltaJoin(
    "q",
    (JoinInput("r", "rs"), JoinInput("s", "rs")),
    ("r.a::BIGINT = s.b::BIGINT AND s.key::VARCHAR <> 'x'",),
    (("a", "r.a"),),
)
PLAN = Plan("p", (Input("r", ("r",)),), (Upsert("rs", "r"), JOIN), (Output("q", "q", "q"),))


def test_arrangements_are_named_by_relation_key_and_conditions(tmp_path: object) -> None:
    """Each part of the state that a join has made has its text."""
    evaluation = Evaluation(PLAN)
    evaluation.advance({"r": [(1, {"a": 1, "b": 1}, 0)]}, 1)
    places = (place for place, _ in evaluation.stores[0].scan(b"arrange "))
    metadata = metadata_of(str(tmp_path), PLAN, 1, SourceOffset(-1, 0, 0, {}, PLAN.fingerprint()))

    told = arrangements_in(metadata)

    assert told.keys() == {place.partition(b"\0")[0].decode() for place in places}
    assert sorted(told.values())[0] == "rs(CAST(a AS BIGINT))"


def test_what_lagging_joins_need_of_an_upsert_is_none_of_its_rows() -> None:
    """Old values, and when they may go, lie in its part: it has no such key, and none waits."""
    store = MemoryStore()
    row = Upserts("r", 0, 0, [1, 2], [b"1", b"1"], [b"a", b"b"], [0, 1])
    changes = upsert.step(store, [row], Interval(0, 3))
    UpsertArrangement(store, changes.updates, Interval(0, 3), 0).settle(0)
    upsert.step(store, [Upserts("r", 0, 0, [9], [b"2"], [b"c"], [2])], Interval(3, 3))

    lines = {place[:1]: _lines(place, entry) for place, entry in store.scan(b"")}

    assert lines == {
        b"h": [],
        b"k": [{"key": 1, "value": "b"}],
        b"q": [],
        b"w": [{"key": 2, "waits_until": 9}],
    }
