"""`ikebana state` says of an arrangement what it is of, by the plan that the checkpoint has."""

from ikebana import DeltaJoin, Input, JoinInput, Output, Plan, Upsert
from ikebana.processor.checkpoint.checkpoint import newborn
from ikebana.processor.cli.state import arrangements_in
from ikebana.processor.evaluate import Evaluation
from ikebana.processor.timing.source_offset import SourceOffset

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
    birth = newborn(str(tmp_path), PLAN, 1, SourceOffset(-1, 0, 0, {}, PLAN.fingerprint()))

    told = arrangements_in(birth)

    assert told.keys() == {place.partition(b"\0")[0].decode() for place in places}
    assert sorted(told.values())[0] == "rs(CAST(a AS BIGINT))"
