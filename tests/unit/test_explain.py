"""`ikebana explain`: what it says is what runs, and whatever is named stays readable.

The stored files lie in `tests/golden/explain`, pipelines with what is said of
them; IKEBANA_GOLDEN=write stores them anew.
"""

import os
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example as example_of
from hypothesis import given
from hypothesis import strategies as st

from ikebana import DeltaJoin, JoinInput
from ikebana.codecs.change import Column
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.texts import printable
from ikebana.processor.cli.plan import explain_command
from ikebana.processor.explain import reading
from ikebana.processor.explain.explanation import Cost, Explanation, explained
from ikebana.processor.explain.graph import Arrow, Box, Diagram
from ikebana.processor.explain.page import html
from ikebana.processor.explain.pictures import (
    LINES,
    PADDING,
    ROW_GAP,
    BoxPlace,
    Size,
    label,
    layout,
    lines_in,
    mermaid,
    svg,
    width,
    wrapped,
)
from ikebana.processor.explain.text import brief, text
from ikebana.processor.explain.words import step_lines
from ikebana.processor.linear.steps import (
    Call,
    Sql,
    Step,
    explode,
    map_,
    negate,
    project,
    rekey,
    select,
    unnest,
    valid_between,
    where,
)
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import (
    Concat,
    Input,
    InputMode,
    Linear,
    Operator,
    Output,
    Plan,
    Upsert,
)
from support.strategies import unhurried

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "explain"
EXAMPLES = ("current", "dated", "joins", "keyed", "large_orders", "shop")
SETTINGS = Settings("checkpoint", {"bootstrap.servers": "broker:9092"})
COLUMNS = tuple(Column(name, "BIGINT") for name in ("a", "b", "c"))
ITEMS = Input("items", ("items",), columns=COLUMNS)
NEWEST = Upsert("newest", "items")
SVG = "{http://www.w3.org/2000/svg}"


def example(name: str) -> Explanation:
    """What is said of a stored pipeline."""
    path = GOLDEN / f"{name}.yaml"
    return explained(*pipeline.read(path, environ={}))


def plan_of(source: Input, *operators: Operator, show: Sequence[str] = ()) -> Plan:
    """A plan that shows these operators, or the last one."""
    names = show or [operators[-1].name]
    outputs = tuple(Output(f"out{at}", name, f"out{at}") for at, name in enumerate(names))
    return Plan("p", (source,), operators, outputs)


def cdc(mode: InputMode = "upsert", **more: object) -> Input:
    """An input of messages that tell of changes."""
    return Input("items", ("items",), "debezium-json", columns=COLUMNS, mode=mode, **more)  # type: ignore[arg-type]


def test_functions_that_workers_cannot_import_are_named() -> None:
    """In one line, as the functions of a notebook's cells are refused at a start."""
    step = Call("map", lambda data: data)
    found = text(explained(plan_of(ITEMS, NEWEST, Linear("mapped", "newest", (step,)))))

    words = " ".join(found.split())
    assert "program alone are not run by workers: operators.mapped.map; write them" in words
    named = Call("map", "operator:itemgetter")
    known = plan_of(ITEMS, NEWEST, Linear("mapped", "newest", (named,)))
    assert "run by workers" not in text(explained(known))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(("suffix", "render"), [("txt", text), ("mmd", mermaid)])
def test_what_is_said_is_what_is_stored(
    name: str, suffix: str, render: Callable[[Explanation], str]
) -> None:
    """Text and Mermaid of pipelines, to the letter."""
    found = render(example(name))
    path = GOLDEN / f"{name}.{suffix}"
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        path.write_text(found, encoding="utf-8")

    assert found == path.read_text(encoding="utf-8")


PUSHED = [
    pytest.param(
        plan_of(ITEMS, NEWEST, Linear("kept", "newest", (where("a > 1"), project("b")))),
        [
            "Input items, columns decoded: 2 of the declared 3: a, b. No step reads any other, "
            "and rows that are equal in these cancel in any case.",
            "Operator kept: where a > 1 runs before the upsert. Nothing else reads the upsert "
            "and messages carry whole rows, so a row that fails can become a tombstone, which "
            "takes the old value away.",
            "Operator kept: its select runs before the upsert. Nothing else reads the upsert, so "
            "the state keeps 1 column instead of whole rows.",
        ],
        [],
        id="everything",
    ),
    pytest.param(
        plan_of(ITEMS, NEWEST),
        [],
        ["Input items: all columns are decoded. Output out0 shows whole rows."],
        id="nothing to push",
    ),
    pytest.param(
        plan_of(
            cdc(key=("a",)),
            NEWEST,
            Linear("kept", "newest", (Sql(where=("a < 9 AND b > 1",), select=(("b", "b"),)),)),
        ),
        [
            "Input items, columns decoded: 2 of the declared 3: a, b. No step reads any other, "
            "and rows that are equal in these cancel in any case.",
            "Input items: only keys with (a < 9) are let in, told once the value is parsed, since "
            "the key is in it. Before an upsert only conditions over the key may drop rows: a "
            "key passes always or never.",
        ],
        [
            "Operator kept: where (b > 1) drops no row before the upsert. Before an upsert only "
            "conditions over the key may drop rows: a key passes always or never; where anything "
            "else drops a row, the old value is left standing.",
            "Operator kept runs behind the upsert: messages of debezium-json need not carry whole "
            "rows, and what one leaves out is taken from the state, which has to have the rows "
            "as they came.",
        ],
        id="a key and a value",
    ),
    pytest.param(
        plan_of(
            Input("items", ("items",)),
            NEWEST,
            Linear("few", "newest", (where("key::BIGINT < 9"), select(a="a"))),
            Linear("some", "newest", (where("key::BIGINT > 90"), select(a="a"))),
            show=("few", "some"),
        ),
        [
            "Input items, columns decoded: only 1: a. No step reads any other, and rows that are "
            "equal in these cancel in any case.",
            "Input items: only keys with (key::BIGINT < 9) or (key::BIGINT > 90) are let in, told "
            "by the Kafka key before the value is parsed. Before an upsert only conditions over "
            "the key may drop rows: a key passes always or never.",
        ],
        [
            "Operators few and some run behind the upsert: 2 branches read it, and what one of "
            "them drops or leaves out, another may want.",
        ],
        id="either of two",
    ),
    pytest.param(
        plan_of(
            ITEMS,
            NEWEST,
            Linear("few", "newest", (where("key::BIGINT < 9"),)),
            show=("few", "newest"),
        ),
        [],
        [
            "Input items: all columns are decoded. Output out0 and out1 show whole rows.",
            "Operator few: where key::BIGINT < 9 drops no row in decoding, though the key alone "
            "decides: output out1 wants other keys as well.",
            "Operator few runs behind the upsert: 2 branches read it, and what one of them drops "
            "or leaves out, another may want.",
        ],
        id="one wants all keys",
    ),
    pytest.param(
        plan_of(cdc("diffs"), Linear("kept", "items", (where("b > 1"), project("b")))),
        [
            "Input items, columns decoded: 1 of the declared 3: b. No step reads any other, and "
            "rows that are equal in these cancel in any case.",
            "Input items: all steps, 1 pass, run in the tasks that decode. Old images tell what "
            "is retracted, so no state is needed before them.",
        ],
        [],
        id="old images",
    ),
    pytest.param(
        plan_of(
            ITEMS,
            NEWEST,
            Linear("made", "newest", (map_("json:dumps"),)),
            Linear("more", "made", (negate(),)),
            Linear("unused", "newest", (negate(),)),
            show=("more",),
        ),
        [],
        [
            "Input items: all columns are decoded. Operator made gives whole rows to a Python "
            "function, json:dumps.",
            "Operator made runs behind the upsert, and the steps after that with it (made and "
            "more): what a Python function makes of a row need not be one row of the same key.",
            "Operator unused runs nowhere: no output shows it.",
        ],
        id="Python",
    ),
    pytest.param(
        plan_of(
            Input("items", ("items",), "bytes", "bytes"),
            NEWEST,
            Linear("long", "newest", (where("octet_length(value) > 3"),)),
        ),
        [
            "Operator long: where octet_length(value) > 3 runs before the upsert. Nothing else "
            "reads the upsert and messages carry whole rows, so a row that fails can become a "
            "tombstone, which takes the old value away.",
        ],
        [],
        id="bytes",
    ),
    pytest.param(
        plan_of(ITEMS, NEWEST, Linear("whole", "newest", (select(copy="value"),))),
        [
            "Operator whole: its select runs before the upsert. Nothing else reads the upsert, so "
            "the state keeps 1 column instead of whole rows.",
        ],
        ["Input items: all columns are decoded. Operator whole reads value as a whole."],
        id="the value as a whole",
    ),
]


@pytest.mark.parametrize(("plan", "pushed", "kept"), PUSHED)
def test_every_push_has_a_reason_and_so_has_every_other(
    plan: Plan, pushed: list[str], kept: list[str]
) -> None:
    """Sentences tell what was pushed, what was not, and why."""
    found = explained(plan, SETTINGS)

    assert (list(found.pushed), list(found.not_pushed)) == (pushed, kept)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (negate(), "negate turns diffs around, and before an upsert there are none"),
        (
            unnest("each", "[a, b]"),
            "flat_map makes several rows of one, and an upsert keeps one a key",
        ),
        (rekey("a"), "it makes other keys, and the upsert needs those that the messages have"),
        (
            valid_between("a", None),
            "it moves updates in time, and an upsert takes messages at their own times",
        ),
        (
            valid_between(None, "a"),
            "it moves updates in time, and an upsert takes messages at their own times",
        ),
        (Sql(diff="a"), "it multiplies diffs, and before an upsert there are none"),
        (
            explode("json:loads"),
            "what a Python function makes of a row need not be one row of the same key",
        ),
    ],
)
def test_what_cannot_go_before_an_upsert_is_named(step: Step, reason: str) -> None:
    """Only conditions and select can; of another step it is said why it cannot."""
    found = explained(plan_of(ITEMS, NEWEST, Linear("other", "newest", (step,))), SETTINGS)

    assert found.not_pushed[-1] == f"Operator other runs behind the upsert: {reason}."


@pytest.mark.parametrize(
    "plan",
    [
        *(pytest.param(param.values[0], id=str(param.id)) for param in PUSHED),
        *(
            pytest.param(pipeline.read(GOLDEN / f"{name}.yaml", environ={}).plan, id=name)
            for name in EXAMPLES
        ),
    ],
)
def test_conditions_said_to_drop_rows_are_those_that_do(plan: Plan) -> None:
    """Branch by branch, what is said to be over the key is what the planner filters by."""
    written = planner.physical(plan, optimized=False)
    for source in plan.inputs:
        branches = reading.branches_of(plan, source, written)
        said = [
            tuple(c.text for c in reading.conditions(branch, source) if c.drops)
            for branch in branches
        ]

        done = planner.physical(plan).readings[source.name].key_filters
        assert done == (tuple(said) if all(said) else ())


def decoding(plan: Plan) -> list[str]:
    """What is said of the decoding of a plan's input."""
    (box,) = (box for box in explained(plan, SETTINGS).run.boxes if box.kind == "decoding")
    return list(box.lines)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            cdc(),
            "old images: read, only to count where they differ from the state (drift is true)",
        ),
        (cdc("diffs"), "old images: read, they are what is retracted (mode is diffs)"),
        (
            cdc(drift=False),
            "old images: not read, the state tells what is retracted (drift is false)",
        ),
        (ITEMS, "old images: none, the messages have none"),
        (cdc(tables=r"shop\..*"), r"tables: only those that match shop\..*"),
        (ITEMS, "columns: all. Output out0 shows whole rows"),
        (
            Input("items", ("items",), "bytes", "bytes"),
            "columns: none, bytes are taken as they are",
        ),
        (
            Input("items", ("items",), start="latest"),
            "key as json, value as json, from the latest",
        ),
    ],
)
def test_decoding_tells_what_it_reads(source: Input, line: str) -> None:
    """Old images, tables, columns, formats and start."""
    plan = plan_of(source, show=("items",)) if source.mode == "diffs" else plan_of(source, NEWEST)

    assert line in decoding(plan)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (cdc(), "told by the Kafka key before the value is parsed"),
        (cdc(key=("a",)), "told once the value is parsed, since the key is in it"),
        (
            Input("items", ("items",), "canal", columns=COLUMNS),
            "told once the value is parsed, since the key is in it",
        ),
        (
            Input("items", ("items",), "avro", "avro", options=(("framing", "headers"),)),
            "told once the value is parsed, since the key is in it",
        ),
        (
            Input("items", ("items",), "avro", "avro"),
            "told by the Kafka key before the value is parsed",
        ),
    ],
)
def test_when_a_key_is_known_depends_on_the_format(source: Input, told: str) -> None:
    """Some formats have the row's key in the Kafka key, others in the value only."""
    plan = plan_of(source, NEWEST, Linear("few", "newest", (where("key->>'a' = 'x'"),)))

    assert f"keys: only with key->>'a' = 'x', {told}" in decoding(plan)


def test_passes_are_counted_once_however_many_operators_they_fuse() -> None:
    """Branches that come together in concat stay two passes; concat itself is none."""
    plan = plan_of(
        ITEMS,
        NEWEST,
        Linear("one", "newest", (negate(),)),
        Linear("two", "one", (map_("json:dumps"),)),
        Linear("three", "newest", (rekey("a"),)),
        Concat("both", ("two", "three")),
    )
    found = explained(plan, SETTINGS)

    assert found.costs == (
        Cost("decoding items", 0, 0, 0),
        Cost("upsert newest", 1, 0, 2),
        Cost("in all", 1, 0, 2),
    )
    assert [(b.title, b.lines[0]) for b in found.run.boxes if b.kind == "pass"] == [
        ("one + two", "2 operators in 1 pass: 1 SQL statement, 1 run of Python"),
        ("three", "1 operator in 1 pass: 1 SQL statement"),
    ]


def test_an_output_that_reaches_a_root_twice_says_so() -> None:
    """Concat of a collection with itself has every datum twice."""
    plan = plan_of(ITEMS, NEWEST, Concat("both", ("newest", "newest")))
    (box,) = (box for box in explained(plan, SETTINGS).run.boxes if box.id == "output out0")

    assert box.lines[-1] == "shows newest 2 times"


@pytest.mark.parametrize("render", [text, mermaid, svg, html])
def test_no_rendering_shows_a_secret(render: Callable[[Explanation], str]) -> None:
    """Neither of a client's settings, nor within an address."""
    plan = plan_of(ITEMS, NEWEST)
    found = explained(
        plan,
        Settings(
            "s3://key:hunter2@bucket/x",
            {"bootstrap.servers": "b", "sasl.password": "hunter2"},
            source_kafka={"ssl.key.password": "hunter2"},
            registry={"url": "https://ann:hunter2@registry", "basic.auth.user.info": "a:hunter2"},
        ),
    )

    assert dict(found.settings) == {
        "shards": "4, one task and one transaction each in every micro-batch",
        "commit records": "topic p.commits",
        "checkpoint": "s3://***@bucket/x",
        "micro-batch": "at most 250,000 records, heartbeat 10 s",
        "kafka": "bootstrap.servers=b, sasl.password=***",
        "source.kafka": "ssl.key.password=***",
        "registry": "url=https://***@registry, basic.auth.user.info=***",
    }
    assert "hunter2" not in render(found)


HOSTILE = (
    "</text></svg><script>alert(1)</script>",
    "]]> --> <!-- \"'`&amp;&lt;",
    '"]; end; subgraph x["',
    "1. `list` **bold** #35; style a:b#;",
    "\x1b[31m\u202eevil\x00\n\r\u2028\ufffe",
    "日本語の列名とても長い 🌸🌸",
    "x" * 300,
)


def hostile() -> Explanation:
    """Of a plan whose columns, expressions and settings have such names."""
    quoted = ['"' + name.replace('"', '""') + '"' for name in HOSTILE if "\0" not in name]
    names = [name for name in HOSTILE if "\0" not in name]
    operations = "insert", "update", "delete", "truncate"
    source = Input(
        "items",
        ("items",),
        "goldengate",
        columns=tuple(Column(name, "BIGINT") for name in names),
        options=tuple(
            (f"op_{name}", text) for name, text in zip(operations, HOSTILE, strict=False)
        ),
    )
    taken = select({name: f"{sql}\n+ 1" for name, sql in zip(names, quoted, strict=True)})
    odd = where(*(f"{sql} <> 1 AND '<&>' <> 'a'" for sql in quoted))
    join = DeltaJoin(
        "pairs",
        (JoinInput("a", "newest"), JoinInput("b", "newest")),
        (*(f"a.{sql} = b.{sql}" for sql in quoted), f"a.{quoted[0]} < b.{quoted[1]}"),
        tuple((name, f"b.{sql}") for name, sql in zip(names, quoted, strict=True)),
    )
    plan = plan_of(
        source, NEWEST, Linear("odd", "newest", (odd, taken)), join, show=("odd", "pairs")
    )
    return explained(
        plan,
        Settings("<&>", {"bootstrap.servers": "b"}, spark={name: name for name in HOSTILE}),
    )


def bare(words: str) -> str:
    """Text without its spaces, which differ where lines are broken."""
    return re.sub(r"\s", "", words)


@pytest.mark.parametrize(("render", "graphs"), [(svg, 1), (html, 2)])
def test_pictures_are_xml_that_has_each_name_as_it_is(
    render: Callable[[Explanation], str], graphs: int
) -> None:
    """What comes from the user is text, escaped once; there are no elements but ours."""
    found = hostile()
    root = ElementTree.fromstring(render(found))
    shown = bare("".join(root.itertext()))
    boxes = [*found.run.boxes, *(found.written.boxes if graphs == 2 else ())]

    assert [
        line for box in boxes for line in (box.title, *box.lines) if bare(line) not in shown
    ] == []
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        *("svg", "title", "style", "rect", "g", "path", "text"),
        *("html", "head", "meta", "body", "h1", "h2", "p", "code", "div", "ul", "li"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert len([element for element in root.iter() if element.tag == f"{SVG}svg"]) == graphs


@pytest.mark.parametrize("render", [text, mermaid, svg, html])
def test_nothing_unseen_reaches_a_rendering(render: Callable[[Explanation], str]) -> None:
    """No escape sequence for a terminal, no character that turns the line around."""
    unseen = {c for c in render(hostile()) if unicodedata.category(c) in ("Cc", "Cf", "Cn", "Zl")}

    assert unseen == {"\n"}


@pytest.mark.parametrize("name", [*EXAMPLES, "hostile"])
def test_text_is_within_its_box(name: str) -> None:
    """Every line begins and ends in the rectangle around it, by its width and its height."""
    found = hostile() if name == "hostile" else example(name)
    root = ElementTree.fromstring(svg(found))
    seen = 0
    for group in root.iter(f"{SVG}g"):
        texts = group.findall(f"{SVG}text")
        if not texts:
            continue
        (box,) = group.findall(f"{SVG}rect")
        left, top, wide, high = (float(box.attrib[k]) for k in ("x", "y", "width", "height"))
        for line in texts:
            size, _ = LINES[line.attrib["class"]]
            x, y = float(line.attrib["x"]), float(line.attrib["y"])
            seen += 1
            assert left < x
            assert x + size * width(line.text or "") <= left + wide - PADDING + 0.2
            assert top < y - size / 2
            assert y < top + high
    assert seen == sum(len(lines_in(box)) for box in found.run.boxes)


def overlaps(one: BoxPlace, other: BoxPlace) -> bool:
    """Whether two rectangles have a point in common."""
    return (
        one.left < other.left + other.width
        and other.left < one.left + one.width
        and one.top < other.top + other.height
        and other.top < one.top + one.height
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Diagram, dict[str, Size]]:
    """Graphs without cycles, with boxes of all sizes."""
    count = draw(st.integers(1, 9))
    kinds = st.sampled_from(["operator", "output"])
    boxes = tuple(Box(str(at), draw(kinds), str(at)) for at in range(count))  # type: ignore[arg-type]
    pairs = [
        Arrow(one.id, other.id) for one, other in combinations(boxes, 2) if one.kind == "operator"
    ]
    arrows = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    sides = st.integers(20, 300)
    sizes = {box.id: Size(draw(sides), draw(sides)) for box in boxes}
    return Diagram("g", boxes, tuple(arrows)), sizes


@unhurried
@given(graphs())
def test_boxes_do_not_overlap_and_arrows_go_right(drawn: tuple[Diagram, dict[str, Size]]) -> None:
    """Boxes lie apart and within the picture; arrows lead from a right side to a left one."""
    graph, sizes = drawn
    places, routes, wide, high = layout(graph, sizes)

    assert {name: (p.width, p.height) for name, p in places.items()} == sizes
    assert not any(overlaps(a, b) for a, b in combinations(places.values(), 2))
    assert all(p.left >= 0 and p.top >= -1e-6 for p in places.values())
    assert all(
        p.left + p.width <= wide and p.top + p.height <= high + 1e-6 for p in places.values()
    )
    for arrow, route in zip(graph.arrows, routes, strict=True):
        origin, target = places[arrow.origin], places[arrow.target]
        assert route[0] == pytest.approx((origin.left + origin.width, origin.middle))
        assert route[-1] == pytest.approx((target.left, target.middle))
        assert [x for x, _ in route] == sorted(x for x, _ in route)


@unhurried
@given(graphs())
def test_arrows_pass_beside_boxes(drawn: tuple[Diagram, dict[str, Size]]) -> None:
    """An arrow over several layers has a lane in each, which no box lies in."""
    graph, sizes = drawn
    places, routes, _, _ = layout(graph, sizes)
    for route in routes:
        for (left, y), (right, _) in zip(route[1:-1:2], route[2:-1:2], strict=True):
            lane = BoxPlace(left, y - 1, right - left, 2)
            assert not any(overlaps(lane, place) for place in places.values())


def test_a_box_without_arrows_lies_below_the_others() -> None:
    """It takes no place in a row that an arrow goes through."""
    boxes = (Box("a", "topic", "a"), Box("alone", "output", "alone"), Box("b", "output", "b"))
    graph = Diagram("g", boxes, (Arrow("a", "b"),))
    places = layout(graph, {box.id: Size(50, 40) for box in boxes}).places

    assert places["a"].top == places["b"].top == 0
    assert places["alone"].top == 40 + ROW_GAP


def test_boxes_are_ordered_so_that_arrows_do_not_cross() -> None:
    """Where an order without crossings exists in a plain case, it is found."""
    boxes = tuple(Box(name, "operator", name) for name in ("a", "b", "c", "d", "e", "f"))
    arrows = (Arrow("a", "f"), Arrow("b", "e"), Arrow("c", "d"))
    places = layout(Diagram("g", boxes, arrows), {b.id: Size(50, 40) for b in boxes}).places

    assert [places[a].middle == places[b].middle for a, b in arrows] == [True, True, True]


@unhurried
@given(st.text("ab ,é日🌸", max_size=200), st.integers(6, 30))
@example_of("a aaaa日🌸", 6)
def test_broken_lines_are_narrow_and_lose_nothing(words: str, most: int) -> None:
    """Each line is at most as wide as is asked; all that is not space is there, in order."""
    lines = list(wrapped(words, most))

    assert bare("".join(lines)) == bare(words)
    assert all(width(line) <= most for line in lines)


@pytest.mark.parametrize(
    ("words", "most", "lines"),
    [
        ("a bc def", 100, ["a bc def"]),
        ("aaaa bbbb cccc", 6.2, ["aaaa bbbb", "  cccc"]),
        ("  aaaa bbbb", 5, ["  aaaa", "    bbbb"]),
        ("aaaaaaaaaaaa", 5, ["aaaaaaaa", "  aaaa"]),
        ("aaaa aaa ", 5, ["aaaa aaa"]),
        ("", 5, [""]),
    ],
)
def test_lines_are_broken_at_spaces_where_there_are_any(
    words: str, most: float, lines: list[str]
) -> None:
    """Further lines hang; a word that is too long is broken within."""
    assert list(wrapped(words, most)) == lines


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        (negate(), ["negate: true"]),
        (map_("json:dumps"), ["map: json:dumps"]),
        (Call("join_function", "a:b", moves_time=True), ["join_function: a:b"]),
        (where("a = 1\n  AND b"), ["where: a = 1", "  AND b"]),
        (where("a", "b"), ["where: a", "where: b"]),
        (project("a", 'b"c'), ['select: a, b"c']),
        (select(a="a", twice="a * 2"), ["select: a", "select: twice: a * 2"]),
        (unnest("each", "[a]"), ["flat_map: each: [a]"]),
        (
            Sql(key="a", diff="b", valid_from="c", valid_until="d"),
            ["valid_from: c", "valid_until: d", "diff: b", "key: a"],
        ),
        (where(""), ["where: "]),
    ],
)
def test_steps_are_told_in_the_words_of_the_file(step: Step, lines: list[str]) -> None:
    """Parts stand in the order in which they are done."""
    assert step_lines(step) == lines


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a-b.c_d", "a-b.c_d"),
        ("1. a - b", "1#46; a #45; b"),
        ("<b>&\"'#`", "#60;b#62;#38;#34;'#35;#96;"),
        ("style a:b#c;", "style a#58;b#35;c#59;"),
        ("🌸", "#127800;"),
    ],
)
def test_a_label_of_mermaid_has_nothing_that_means_something(words: str, shown: str) -> None:
    """Neither to Mermaid nor to the Markdown and HTML that it reads in labels."""
    assert label(words) == shown


def test_lines_of_mermaid_are_as_many_as_there_are_parts() -> None:
    """Whatever names hold, a box is one line, whose label ends where it should."""
    found = hostile()
    lines = mermaid(found).splitlines()
    boxes = [line for line in lines if re.match(r"    [wr]\d+[\[(]", line)]

    assert len(boxes) == len(found.written.boxes) + len(found.run.boxes)
    assert all(line.count('"') == 2 for line in boxes)


def test_printable_leaves_text_alone() -> None:
    """What can be seen stays, of whatever script."""
    assert printable("añb 日本 🌸 <&>") == "añb 日本 🌸 <&>"
    assert printable("\x1b\u202e\ue000") == "\\u001b\\u202e\\ue000"


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("text", "pipeline current ("),
        ("mermaid", "flowchart LR\n"),
        ("svg", "<svg "),
        ("html", "<!DOCTYPE html>\n"),
    ],
)
def test_the_command_prints_or_writes(form: str, begin: str, tmp_path: Path) -> None:
    """--output gets what would be printed."""
    file, to = str(GOLDEN / "current.yaml"), tmp_path / "plan"
    printed = CliRunner().invoke(explain_command, [file, "--format", form])
    written = CliRunner().invoke(explain_command, [file, "--format", form, "--output", str(to)])

    assert (printed.exit_code, written.exit_code, written.output) == (0, 0, "")
    assert printed.output.startswith(begin)
    assert to.read_text(encoding="utf-8") == printed.output


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The message names it and says why."""
    to = tmp_path / "missing" / "plan"
    result = CliRunner().invoke(
        explain_command, [str(GOLDEN / "current.yaml"), "--output", str(to)]
    )

    assert isinstance(result.exception, ConfigError)
    assert result.exception.message == f"could not write {to}: No such file or directory"


def test_the_brief_text_is_one_screen() -> None:
    """It names inputs, state, outputs and costs; the full text has all of it and more."""
    plan, settings = pipeline.read(
        Path("examples/views.sql"), bootstrap_servers="b:1", checkpoint="c", environ={}
    )
    explanation = explained(plan, settings)
    short = brief(explanation)

    assert len(short.splitlines()) <= 40 < len(text(explanation).splitlines())
    for name in (*(i.name for i in plan.inputs), *(o.topic for o in plan.outputs), "best.first"):
        assert name in short, name
