"""Random pipelines as their users edit them: each feature of one before is kept, or drawn anew.

All read the same topics: `orders` and `customers`, rows by key, `clicks`, rows that stay,
`events` of a machine, and `given`, updates that have their times.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, Literal

from hypothesis import strategies as st

from ikebana import Plan
from ikebana.processor.authoring.pipeline import parse
from ikebana.testing import Topics

# How times come about: two that we make, and records' own.
Domain = Literal["offset", "ingest", "dated"]
Features = dict[str, Any]
Parts = dict[str, dict[str, Any]]

ORDERS = {
    "product": "VARCHAR",
    "customer": "BIGINT",
    "quantity": "BIGINT",
    # Nobody selects it alone: it is only kept where rows are whole.
    "note": "VARCHAR",
}
DATED = {"clock": "kafka", "ahead": "never"}
_AGGREGATES = [
    {"n": "count(*)"},
    {"n": "count(*)", "q": "sum(quantity)"},
    {"least": "min(quantity)", "kinds": "count(product)"},
]
# What cannot be evaluated for some rows that meet.
_FAILING = "CASE WHEN o.product = c.name THEN c.name::BIGINT ELSE 1 END > 0"
# Operators under other names: one may have the name that another one has had.
_RENAMED: list[dict[str, str]] = [
    {"totals": "sums", "sizes": "totals"},
    {"totals": "sizes", "sizes": "totals"},
    {"named": "few", "few": "named"},
    {"few": "totals", "totals": "few"},
    {"largest": "status", "status": "largest"},
    {"clicked": "rates", "rates": "clicked"},
]
_FEATURES: dict[str, Sequence[Any]] = {
    "some": [
        None,
        "quantity > 3",
        "quantity > 5",
        "product = 'tea'",
        "(10 / quantity)::BIGINT > 2",
    ],
    "until": [None, "quantity", "2*quantity"],
    "since": [None, None, "quantity", "2*quantity"],
    "totals": [None, *_AGGREGATES],
    "by": ["product", "customer"],
    "of": ["order", "some", "merged"],
    "sizes": [False, True],
    "largest": [None, "edited_functions:most", "edited_functions:two"],
    # What is left out of some has negative counts.
    "merged": [None, ["order", "some"], ["order", "order"], ["some", "less"]],
    "customers": [False, True, True],
    "named": [None, {"p": "o.product", "n": "c.name"}, {"q": "o.quantity", "n": "c.name"}],
    "joined": ["pair", "pair", "turned", "triple", "cycle", "sums", "later"],
    "strategy": ["auto", "lookup"],
    "less": [None, None, "o.product < c.name", "o.quantity > 2", _FAILING],
    "few": [None, None, "n > 'salt'", "n = 'tea'"],
    "over": [False, False, True],
    "counted": [None, "named", "few", "over"],
    "priced": [False, False, True],
    "retract": ["current", "locked"],
    "clicks": [None, None, "n > 0", "n > 1", "(6 / n)::BIGINT > 2"],
    "rates": [None, {"m": "count(*)"}, {"s": "sum(n)"}],
    # Of some events the last one has two states, of which an output in upserts tells.
    "status": [None, "machines:one_more", "machines:latest", "machines:one_or_two"],
    "given": [None, None, "x", "y"],
    "name": ["order", "order", "ordered"],
    "names": [None, None, *_RENAMED],
    # What the other input was called before is the name of one.
    "input names": [{}, {}, {"orders": "bought"}, {"orders": "customers", "customers": "orders"}],
    "policy": ["record", "record", "record", "record", "record", "drop"],
    # What of orders is always shown: whole rows, or some columns of some of them.
    "slim": [
        None,
        {"select": {"p": "product"}},
        {"select": {"p": "product", "c": "customer"}},
        {"select": {"p": "product"}, "where": "customer > 0"},
    ],
    "quantity": ["BIGINT", "BIGINT", "BIGINT", "SMALLINT"],
}
_OUTPUTS = ("one", "two", "three", "four")
# Their collections have one value a key.
_SINGLE = {"order", "some", "totals", "sizes", "customer", "status"}


@st.composite
def features(draw: st.DrawFn, before: Features | None = None) -> Features:
    """What a pipeline has; of one before most is kept."""

    def drawn(name: str, strategy: st.SearchStrategy[Any]) -> Any:
        if before is not None and draw(st.sampled_from([True, True, False])):
            return before[name]
        return draw(strategy)

    found = {name: drawn(name, st.sampled_from(values)) for name, values in _FEATURES.items()}
    shown = ["order", "some", "soon", "later", "merged", "totals", "sizes", "largest", "customer"]
    shown += ["named", "named", "few", "over", "counted"]
    shown += ["priced", "clicked", "rates", "status", "giving"]
    for name in _OUTPUTS:
        found[name] = drawn(name, st.sampled_from(shown))
        found[f"{name} topic"] = drawn(f"{name} topic", st.sampled_from([name, name, f"{name}.b"]))
        found[f"{name} upserts"] = drawn(f"{name} upserts", st.sampled_from([False, False, True]))
    return found


@st.composite
def turned(draw: st.DrawFn, before: Features | None = None) -> Features:
    """Features of which outputs turn from what nothing keeps to something else, and back."""
    found = dict(before or draw(features()))
    if before is None:
        found |= {"customers": True, "priced": True, "clicks": "n > 0", "merged": None}
        found |= {"named": {"p": "o.product", "n": "c.name"}, "joined": "pair", "status": None}
        found |= {f"{name} topic": name for name in _OUTPUTS}
        found |= {f"{name} upserts": False for name in _OUTPUTS}
    found |= {"three": "named", "four": "clicked"}
    shown = ["priced", "priced", "clicked", "order", "some", "soon", "totals", "named"]
    found["one"] = draw(st.sampled_from(shown))
    found["two"] = draw(st.sampled_from(["priced", "order"]))
    found["retract"] = draw(st.sampled_from(_FEATURES["retract"]))
    return found


def parts_of(found: Features, domain: Domain) -> Parts:
    """The inputs, operators and outputs that features come to."""
    times = {"event_time": DATED} if domain == "dated" else {}
    order = found["name"]
    inputs: dict[str, Any] = {
        "orders": {
            "topic": "orders",
            "format": "json",
            "columns": {**ORDERS, "quantity": found["quantity"]},
            **times,
        }
    }
    operators: dict[str, Any] = {"order": {"upsert": "orders"}}
    if found["some"]:
        operators["some"] = {"linear": "order", "where": found["some"]}
    if found["until"] and domain != "offset":
        operators["soon"] = {"linear": "order", "valid_until": found["until"]}
    if found["since"] and domain == "dated":
        operators["later"] = {"linear": "order", "valid_from": found["since"]}
    if "less" in (found["merged"] or ()):
        operators["less"] = {"linear": "order", "negate": True}
    if found["merged"] and set(found["merged"]) <= operators.keys():
        operators["merged"] = {"concat": found["merged"]}
    source = found["of"] if found["of"] in operators else "order"
    if found["totals"]:
        operators["totals"] = {
            "reduce": source,
            "by": found["by"],
            "aggregates": found["totals"],
        }
        if found["sizes"] and "n" in found["totals"]:
            operators["sizes"] = {"reduce": "totals", "by": "n", "aggregates": {"m": "count(*)"}}
    if found["largest"]:
        operators["largest"] = {
            "reduce": source,
            "by": found["by"],
            "function": found["largest"],
        }
    if found["customers"]:
        columns = {"name": "VARCHAR"}
        inputs["customers"] = {
            "topic": "customers",
            "format": "json",
            "columns": columns,
            **times,
        }
        operators["customer"] = {"upsert": "customers"}
        operators |= _joins(found, source, operators.keys())
        if found["priced"]:
            operators["priced"] = {
                "as_of_join": {"o": "order", "c": "customer"},
                "on": ["o.customer::VARCHAR = c.key::VARCHAR"],
                "select": {"p": "o.product", "n": "c.name"},
                "retract": found["retract"],
            }
    if found["clicks"]:
        columns = {"n": "BIGINT"}
        inputs["clicks"] = {
            "topic": "clicks",
            "format": "json",
            "mode": "append",
            "columns": columns,
            **times,
        }
        operators["clicked"] = {"linear": "clicks", "where": found["clicks"]}
        if found["rates"]:
            operators["rates"] = {"reduce": "clicked", "by": "n", "aggregates": found["rates"]}
    if found["status"]:
        inputs["events"] = {"topic": "events", "format": "json", **times}
        operators["status"] = {"state_machine": "events", "step": found["status"]}
    if found["given"] and domain == "dated":
        columns = {"x": "BIGINT", "y": "BIGINT"}
        inputs["given"] = {
            "topic": "given",
            "format": "diff",
            "mode": "diffs",
            "columns": columns,
        }
        operators["giving"] = {
            "reduce": "given",
            "by": found["given"],
            "aggregates": {"n": "count(*)", "s": "sum(x)", "m": "max(y)"},
        }
    outputs = {
        name: {
            "from": found[name],
            "topic": found[f"{name} topic"],
            **(
                {"format": "upsert"} if found[f"{name} upserts"] and found[name] in _SINGLE else {}
            ),
        }
        for name in _OUTPUTS
        if found[name] in operators
    }
    if found["slim"]:
        operators["slim"] = {"linear": "order", **found["slim"]}
    outputs["all"] = {"from": "slim" if found["slim"] else "order", "topic": "all"}
    names = {"order": order, **(found["names"] or {})}
    for operator in operators.values():
        for reads in {"upsert", "state_machine"} & operator.keys():
            operator[reads] = found["input names"].get(operator[reads], operator[reads])
    marked = json.dumps([operators, outputs])
    for name in names:
        marked = marked.replace(json.dumps(name), json.dumps(f"@{name}"))
    for name, other in names.items():
        marked = marked.replace(json.dumps(f"@{name}"), json.dumps(other))
    operators, outputs = json.loads(marked)
    inputs = {found["input names"].get(name, name): each for name, each in inputs.items()}
    return {
        "inputs": inputs,
        "operators": operators,
        "outputs": outputs,
        "errors": {"policy": found["policy"]},
    }


def _joins(found: Features, source: str, known: Collection[str]) -> Parts:
    """A delta join, steps behind it, a join over it, and a reduction of any of these."""
    if not found["named"]:
        return {}
    kind, select = found["joined"], found["named"]
    inputs = {"o": source, "c": "customer"}
    where = ["o.customer::VARCHAR = c.key::VARCHAR", *([found["less"]] if found["less"] else [])]
    if kind == "later" and "later" in known:
        inputs["o"] = "later"
    if kind == "turned":
        inputs = {"c": "customer", "o": source}
    if kind in ("triple", "cycle"):
        inputs["p"] = "order"
        where.append("p.product = o.product")
        if kind == "cycle":
            where.append("p.customer::VARCHAR = c.key::VARCHAR")
    if kind == "sums" and found["by"] == "customer" and "totals" in known:
        inputs["o"] = "totals"
        where, select = ["o.key::VARCHAR = c.key::VARCHAR"], {"t": "o.value", "n": "c.name"}
    operators: dict[str, Any] = {
        "named": {
            "delta_join": inputs,
            "where": where,
            "select": select,
            "strategy": found["strategy"],
        }
    }
    if found["few"]:
        operators["few"] = {"linear": "named", "where": found["few"]}
    if found["over"]:
        operators["over"] = {
            "delta_join": {"a": "few" if found["few"] else "named", "b": "customer"},
            "where": ["a.n = b.name"],
            "select": {"n": "a.n", "k": "b.key"},
        }
    if found["counted"] in operators:
        n = {"n": "count(*)"}
        operators["counted"] = {"reduce": found["counted"], "by": "n", "aggregates": n}
    return operators


def plan_of(parts: Parts, domain: Domain) -> Plan:
    """The plan of the pipeline's file."""
    whole = {
        "pipeline": "shop",
        **parts,
        "time": "offset" if domain == "offset" else "ingest",
        "kafka": {"bootstrap.servers": "localhost:9092"},
        "run": {"checkpoint": "./c"},
    }
    return parse(json.dumps(whole), "shop.yaml", environ={}).plan


_orders = st.none() | st.fixed_dictionaries(
    {
        "product": st.sampled_from(["tea", "milk"]),
        "customer": st.integers(0, 2),
        # Text is no number: an error of its key.
        "quantity": st.integers(0, 9) | st.integers(0, 9) | st.just("many"),
        "note": st.just("n"),
    }
)
_names = st.none() | st.fixed_dictionaries({"name": st.sampled_from(["milk", "tea", "salt"])})
# Text is no number here, too: an error that stays as long as the input.
_numbers = st.fixed_dictionaries({"n": st.sampled_from([0, 1, 2, 3, "many"])})
# What is sent: a topic, a key, a value, how much time has gone by, and how much later it comes.
records = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.just("orders"), st.integers(0, 4), _orders),
            st.tuples(st.just("orders"), st.integers(0, 4), _orders),
            st.tuples(st.just("customers"), st.integers(0, 2), _names),
            st.tuples(st.just("clicks"), st.integers(0, 2), _numbers),
            st.tuples(st.just("events"), st.integers(0, 2), st.integers(0, 3)),
            st.tuples(
                st.just("given"),
                st.integers(0, 2),
                st.fixed_dictionaries({"x": st.integers(0, 1), "y": st.integers(0, 1)}),
            ),
        ),
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, 1, 2, 9]),
    ),
    max_size=7,
)
TOPICS = ("orders", "customers", "clicks", "events", "given")


class Sender:
    """Sends what is drawn, some of it late, and closes times."""

    def __init__(self, topics: Topics) -> None:
        self.topics, self.time = topics, 1
        for topic in TOPICS:
            topics.create(topic)

    def send(self, drawn: list[tuple[tuple[str, int, Any], int, int]]) -> None:
        """Append records; what is a topic of updates has none that is late."""
        for (topic, key, value), later, delay in drawn:
            self.time += later
            if topic == "given":
                # A collection that may be retracted before it is there.
                change = {0: 1, 1: -1, 2: 2, 9: -1}[delay]
                self.topics.update(topic, key, value, self.time, change)
            else:
                # A row that is gone is a tombstone.
                time = max(0, self.time - delay)
                self.topics.send(topic, b"%d" % key, value, timestamp=time)

    def close(self) -> None:
        """Let all inputs with times of their own say that theirs have gone by."""
        self.time += 1
        for topic in ("orders", "customers"):
            self.topics.send(topic, b'"nobody"', None, timestamp=self.time)
        self.topics.send("events", b'"nobody"', 0, timestamp=self.time)
        self.topics.send("clicks", b'"nobody"', {"n": 0}, timestamp=self.time)
        self.topics.close("given", self.time)
