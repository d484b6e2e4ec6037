"""The files of the console, their headers, and what it asks for."""

import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from ikebana.processor.planning.plan import Input
from ikebana.processor.watching import console, front, metrics
from ikebana.processor.watching.guard import Access, AccessLimits
from ikebana.processor.watching.health import Health
from ikebana.processor.watching.health import HealthLimits as Patience
from ikebana.processor.watching.monitor import InputFigures, MetricSeries, Monitor, run_figures
from ikebana.serving.service import Service, ServiceOptions
from support.served_topics import KEEP_ALL, MemoryTopics, answering
from support.waiting import wait_until
from support.watched_runs import PLAN, monitored

PAGE = Path(__file__).resolve().parents[2] / "processor" / "console" / "page"
SVG = "{http://www.w3.org/2000/svg}"


@contextmanager
def following(folder: Path) -> Iterator[Service]:
    """A service of one empty topic, which whoever answers for it starts."""
    wanted = ServiceOptions({"orders.diffs": "diff"}, folder, KEEP_ALL)
    service = Service(wanted, MemoryTopics().follow, print)
    try:
        yield service
    finally:
        service.close()


class Answer:
    """An answer as it came, without that a client changes the path or follows it elsewhere."""

    def __init__(self, url: str, path: str, **headers: str) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()
        connection.close()

    def json(self) -> Any:
        """Decode it."""
        return json.loads(self.body)


@pytest.fixture(params=["serve", "run"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server that has a console: of collections, or of a run."""
    if request.param == "serve":
        with (
            following(tmp_path) as service,
            answering(service, plan=lambda: console.of_served(PLAN)) as found,
        ):
            yield found
    else:
        with monitored(Monitor(PLAN, Health(Patience(60, 60, 60), time.monotonic))) as found:
            yield found


def test_the_root_leads_to_the_page(url: str) -> None:
    """The page and all that it names are there, with their types."""
    root = Answer(url, "/")
    assert (root.status, root.headers["Location"]) == (307, "/console/")
    page = Answer(url, "/console/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"

    named = re.findall(r'(?:src|href)="([^"#]+)"', page.body.decode())
    assert {"main.js", "console.css", "plan.css", "icon.svg"} <= set(named)
    for name in named:
        assert Answer(url, f"/console/{name}").status == 200
    kinds = {name: Answer(url, f"/console/{name}").headers["Content-Type"] for name in named}
    assert kinds["main.js"] == "text/javascript; charset=utf-8"
    assert kinds["plan.css"] == "text/css; charset=utf-8"


def test_every_file_has_the_policy(url: str) -> None:
    """Nothing from elsewhere, nothing inline, and no HTML from text."""
    for path in ("/", "/console/", "/console/main.js", "/console/plan.css"):
        headers = Answer(url, path).headers
        policy = headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'"} <= set(policy)
        assert {"frame-ancestors 'none'", "require-trusted-types-for 'script'"} <= set(policy)
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/console/../plan_view.py",
        "/console/..%2fplan_view.py",
        "/console/%2e%2e/site.py",
        "/console//etc/passwd",
        "/console/..\\site.py",
        "/console/page/main.js",
        "/console/main.js%00",
        "/console/__init__.py",
        "/console",
    ],
)
def test_a_path_that_is_no_file_of_the_page_is_not_found(url: str, path: str) -> None:
    """Whatever it is."""
    answer = Answer(url, path)

    assert answer.status in (307, 404)
    assert answer.headers.get("Location", f"{url}/console/") == f"{url}/console/"
    assert b"import" not in answer.body


def test_the_plan_is_the_drawing_of_explain_with_room_for_figures(url: str) -> None:
    """An output has the figures of what is served, or of the run."""
    found = Answer(url, "/v1/plan").json()

    assert found["name"] == "shop"
    assert [each["title"] for each in found["drawings"]] == ["as run", "as written"]
    root = ElementTree.fromstring(found["drawings"][0]["svg"])
    boxes = {box.get("data-box"): box for box in root.iter(f"{SVG}g") if box.get("data-box")}
    assert {"topic orders", "state current", "output out"} <= boxes.keys()
    assert root.find(f".//{SVG}style") is None
    figures = {text.get("data-figure") for text in boxes["output out"]} - {None}
    assert {"frontier", "lag", "rate"} <= figures
    assert found["boxes"]["output out"] in ("out", "orders.diffs")


def test_topics_that_are_served_by_name_have_no_plan(tmp_path: Path) -> None:
    """And the answer says what has one."""
    with (
        following(tmp_path) as service,
        answering(service) as url,
    ):
        answer = Answer(url, "/v1/plan")

    assert answer.status == 404
    assert "pipeline" in answer.json()["hint"]


def test_the_page_needs_no_token_but_what_it_shows_does(tmp_path: Path) -> None:
    """Otherwise nobody could enter one."""
    with (
        following(tmp_path) as service,
        answering(service, AccessLimits(Access.of_tokens(["secret"]))) as url,
    ):
        assert Answer(url, "/console/main.js").status == 200
        for path in ("/openapi.json", "/v1/plan", "/v1/collections", "/console/../v1/plan"):
            assert Answer(url, path).status in (401, 404)
        assert Answer(url, "/v1/collections", Authorization="Bearer secret").status == 200


def test_words_of_a_plan_are_text_in_its_drawing() -> None:
    """So an option that looks like a tag is none."""
    words = "</text><script>alert(1)</script>"
    source = Input("changes", ("orders",), "goldengate", options=(("op_insert", words),))
    _, written = console.of_run(replace(PLAN, inputs=(source,))).drawings
    root = ElementTree.fromstring(written.svg)

    assert list(root.iter(f"{SVG}script")) == []
    assert words in "".join(root.itertext())


@pytest.mark.parametrize("file", sorted(PAGE.glob("*.js")), ids=lambda file: file.name)
def test_no_script_makes_html_of_text(file: Path) -> None:
    """Or loads anything from elsewhere; the browser would refuse both."""
    text = file.read_text().replace("http://www.w3.org/2000/svg", "")

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?:", text
    )
    assert ("DOMParser" in text) == (file.name == "plan.js")


def test_the_picture_has_both_colours_in_the_stylesheet() -> None:
    """So that the switch of the page changes it, too."""
    found = front.asset("/console/plan.css")

    assert found is not None
    assert b"light-dark(#ffffff,#0d1117)" in found.body
    assert b"@media" not in found.body


def test_figures_of_a_run_are_taken_from_its_metrics() -> None:
    """What is not known yet is null."""
    series = [
        MetricSeries(metrics.RECORDS.name, (), 7.0),
        MetricSeries(metrics.UPDATES.name, ("out",), 9.0),
        MetricSeries(metrics.UPDATES.name, ("errors",), 1.0),
        MetricSeries(metrics.OUTPUT_FRONTIER.name, ("out",), 2000.0),
        MetricSeries(metrics.OUTPUT_LAG.name, ("out",), 0.5),
        MetricSeries(metrics.OPERATOR_FRONTIER.name, ("current",), 1999.0),
        MetricSeries(metrics.INPUT_FRONTIER.name, ("changes",), 90.0),
        MetricSeries(metrics.INPUT_SILENT.name, ("changes",), 0.0),
        MetricSeries(metrics.INPUT_HOLDS.name, ("changes",), 1.0),
        MetricSeries(metrics.COUNTED_KINDS.name, ("late",), 3.0),
        MetricSeries(metrics.STATE_BYTES.name, ("0",), 100.0),
        MetricSeries(metrics.STATE_BYTES.name, ("1",), 60.0),
        MetricSeries(metrics.STATE_ENTRIES.name, ("0",), 10.0),
    ]
    found = run_figures("shop", (False, "starting"), [], {}, series)

    assert (found.ready, found.reason, found.lag_s, found.batch) == (False, "starting", None, None)
    assert found.records == 7
    assert found.outputs["out"].frontier == 2000
    assert found.outputs["out"].lag_s == 0.5
    assert (found.outputs["errors"].frontier, found.outputs["errors"].updates) == (None, 1)
    assert found.operators["current"].frontier == 1999
    assert found.inputs == {"changes": InputFigures(90, silent=False, holds=True)}
    assert found.counted == {"late": 3}
    assert (found.state.shards, found.state.bytes, found.state.entries) == (2, 160, 10)


def test_a_run_tells_its_figures() -> None:
    """Those that it has before the first batch."""
    with monitored(Monitor(PLAN, Health(Patience(60, 60, 60), time.monotonic))) as url:
        found = Answer(url, "/v1/run").json()

    assert found["pipeline"] == "shop"
    assert found["outputs"].keys() == {"out", "errors"}
    assert found["counted"].keys() == set(metrics.COUNTED)
    assert (found["ready"], found["records"], found["batch"]) == (False, 0, None)


def test_a_server_keeps_how_it_has_been(tmp_path: Path) -> None:
    """From the time when it began, a sample of each collection."""
    with following(tmp_path) as service, answering(service) as url:

        def has_some() -> bool:
            return bool(Answer(url, "/v1/history").json()["series"])

        wait_until(has_some, 20, "the first sample")
        past = Answer(url, "/v1/history").json()
    [(name, samples)] = past["series"].items()
    assert name == "orders.diffs"
    assert (len(past["at"]), len(samples["lag"])) == (1, 1)
    assert samples["updates"] == [0]
