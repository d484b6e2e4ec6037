"""What a join takes away of rows that have no key, as those of an input in `mode: append`."""

import pytest

from ikebana.codecs import canonical
from ikebana.testing import Run
from support import edited_shops
from support.sums import summed


def run_of(operator: str) -> Run:
    plan = edited_shops.plan_of(f"""
inputs:
  a: {{topic: a, mode: append, columns: {{x: BIGINT}}}}
  b: {{topic: b, mode: append, columns: {{x: BIGINT}}}}
operators:
  slim: {{linear: a, select: {{x: x}}}}
  o: {operator}
outputs:
  o: {{from: o, topic: o}}
""")
    return Run(plan, shards=2)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ('{anti_join: {l: a, r: b}, "on": l.x = r.x}', ["{'x': 2}"]),
        ('{anti_join: {l: slim, r: b}, "on": l.x = r.x}', ["{'x': 2}"]),
        (
            '{left_join: {l: a, r: b}, "on": l.x = r.x, select: {x: l.x, y: r.x}}',
            ["{'x': 1, 'y': 1}", "{'x': 2, 'y': None}"],
        ),
        (
            '{full_join: {l: b, r: a}, "on": l.x = r.x, select: {x: l.x, y: r.x}}',
            ["{'x': 1, 'y': 1}", "{'x': None, 'y': 2}"],
        ),
        (
            '{sql: "SELECT x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)"}',
            ["{'x': 2}"],
        ),
        (
            '{sql: "SELECT a.x, b.x AS y FROM a LEFT JOIN b ON a.x = b.x"}',
            ["{'x': 1, 'y': 1}", "{'x': 2, 'y': None}"],
        ),
    ],
)
def test_what_is_taken_away_is_what_was_there(operator: str, expected: list[str]) -> None:
    """Also when the row that takes it away comes later, and goes again."""
    run = run_of(operator)
    for x in (1, 2):
        run.send("a", None, {"x": x})
    run.read()
    run.send("b", None, {"x": 1})
    run.read()

    # As written: a message without a key is another one than that with the key null.
    found = summed(((u.key, u.value), u.diff) for u in run.written.updates["o"])
    assert min(found.values()) >= 0
    shown = [str(canonical.decode(value)) for (_, value), n in found.items() for _ in range(n)]
    assert sorted(shown) == sorted(expected)
