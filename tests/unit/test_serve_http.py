"""The reads of a service over HTTP: answers, refusals, Arrow, events, and who may ask."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from ikebana.arrangements.update import LARGEST
from ikebana.processor.base.texts import EPOCH_MS
from ikebana.processor.watching.guard import EVERYTHING, Access, AccessLimits
from ikebana.serving.arrangement import Retention
from ikebana.serving.http_server import application
from ikebana.serving.operations import OPERATIONS, Callers
from ikebana.serving.parameters import READS, Subscribe
from ikebana.serving.reads import Reads
from ikebana.serving.service import Service
from ikebana.serving.subscriptions import Position
from ikebana.serving.wire import ARROW
from support.served_topics import MemoryTopics, caught_up, serving
from support.waiting import patient

PLANES = "planes"
WHERE = "where.abouts-2"


@pytest.fixture
def topics() -> MemoryTopics:
    """Two topics: planes by number, and where they are."""
    made = MemoryTopics()
    made.close(PLANES, 10, (b'"N1"', b'{"seats":4}', 1, 1), (b'"N2"', b'{"seats":8}', 2, 1))
    made.close(PLANES, 20, (b'"N1"', b'{"seats":4}', 12, -1), (b'"N1"', b'{"seats":5}', 12, 1))
    made.close(WHERE, 15, (b'{"id":"N1","n":1}', b'"JFK"', 3, 1), (None, b"\xff", 4, 2))
    return made


@pytest.fixture
def service(topics: MemoryTopics, tmp_path: Path) -> Iterator[Service]:
    """A service that has caught up with them."""
    with serving(topics, tmp_path, PLANES, WHERE) as found:
        caught_up(found, topics, PLANES, WHERE)
        yield found


def _client(service: Service, limits: AccessLimits = AccessLimits()) -> TestClient:  # noqa: B008
    app = application(Callers(service), 60, limits)
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    """A client of it."""
    with _client(service) as found:
        yield found


def _get(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(f"/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_collections_have_their_times_and_sizes(client: TestClient) -> None:
    """And the newest time that all of them can be read at."""
    found = _get(client, "collections")

    assert found["newest"] == 14
    planes, where = (each["collection"] for each in found["collections"])
    assert planes == {
        "name": PLANES,
        "format": "diff",
        "since": 0,
        "upper": 20,
        "keys": 2,
        "data": 2,
        "total": 2,
        "bytes": 30,
        "times": "offset",
    }
    assert (where["keys"], where["data"], where["total"]) == (2, 2, 3)
    assert _get(client, f"collections/{PLANES}")["collection"] == planes
    assert _get(client, "newest", collection=[PLANES, WHERE]) == {"newest": 14, "since": 0}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"key": '"N1"'}, {"as_of": 19, "key": "N1", "values": [({"seats": 5}, 1)]}),
        ({"key": '"N1"', "as_of": 11}, {"as_of": 11, "key": "N1", "values": [({"seats": 4}, 1)]}),
        (
            {"key": ' "N1" ', "as_of": "1"},
            {"as_of": 1, "key": "N1", "values": [({"seats": 4}, 1)]},
        ),
        ({"key": '"N1"', "as_of": 0}, {"as_of": 0, "key": "N1", "values": []}),
        ({"key": "N1"}, {"as_of": 19, "key": "N1", "values": []}),
        (
            {"key_base64": base64.b64encode(b'"N2"').decode()},
            {"as_of": 19, "key": "N2", "values": [({"seats": 8}, 1)]},
        ),
    ],
)
def test_a_key_is_read_as_of_a_time(
    client: TestClient, query: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Its spelling does not matter, its bytes do."""
    found = _get(client, f"collections/{PLANES}/get", **query)

    values = [(each["value"], each["count"]) for each in found["values"]]
    assert {**found, "values": values} == expected


def test_several_keys_are_read_as_of_one_time(client: TestClient) -> None:
    """Keys are written in any form."""
    body = {"keys": ["N2", "N9", "N1"], "as_of": "11"}
    found = client.post(f"/v1/collections/{PLANES}/get", json=body).json()

    assert found["as_of"] == 11
    assert [
        (row["key"], [v["value"]["seats"] for v in row["values"]]) for row in found["rows"]
    ] == [
        ("N2", [8]),
        ("N9", []),
        ("N1", [4]),
    ]
    objects: dict[str, Any] = {"keys": [{"n": 1.0, "id": "N1"}]}
    [row] = client.post(f"/v1/collections/{WHERE}/get", json=objects).json()["rows"]
    assert row["values"] == [{"value": "JFK", "count": 1}]


def test_bytes_that_are_no_json_are_readable(client: TestClient) -> None:
    """And exact in base64."""
    rows = _get(client, f"collections/{WHERE}/scan")["rows"]
    assert rows[0] == {"key": None, "values": [{"value": {"base64": "/w=="}, "count": 2}]}
    rows = _get(client, f"collections/{WHERE}/scan", encoding="base64")["rows"]
    assert rows[0] == {"key": None, "values": [{"value": "/w==", "count": 2}]}
    assert base64.b64decode(rows[1]["key"]) == b'{"id":"N1","n":1}'


def test_a_scan_is_read_in_pages_of_one_time(client: TestClient, topics: MemoryTopics) -> None:
    """Whatever is closed meanwhile."""
    first = _get(client, f"collections/{PLANES}/scan", limit=1)
    topics.close(PLANES, 30, (b'"N2"', b'{"seats":8}', 25, -1))
    _get(client, "wait", collection=PLANES, time=29)
    second = _get(client, f"collections/{PLANES}/scan", limit=1, page=first["page"])

    assert [row["key"] for row in first["rows"] + second["rows"]] == ["N1", "N2"]
    assert (first["as_of"], second["as_of"], second["page"]) == (19, 19, None)
    assert _get(client, f"collections/{PLANES}/count")["keys"] == 1
    assert _get(client, f"collections/{PLANES}/count", as_of=19)["keys"] == 2
    assert _get(client, f"collections/{PLANES}/count", prefix='"N1', as_of=19)["keys"] == 1
    rows = _get(client, f"collections/{PLANES}/scan", start='"N2"', as_of=19)["rows"]
    assert [row["key"] for row in rows] == ["N2"]


def test_changes_between_two_times(client: TestClient) -> None:
    """The updates behind the first one, up to the second."""
    found = _get(client, f"collections/{PLANES}/changes", above=2)

    assert [(u["time"], u["diff"], u["value"]["seats"]) for u in found["updates"]] == [
        (12, -1, 4),
        (12, 1, 5),
    ]
    assert (found["above"], found["upto"], found["page"]) == (2, 19, None)


def test_answers_come_as_arrow_streams_too(client: TestClient) -> None:
    """With the exact bytes, and the time in a header."""

    def table(path: str) -> pa.Table:
        answer = client.get(f"/v1/collections/{path}", headers={"Accept": ARROW})
        assert answer.headers["content-type"] == ARROW
        assert answer.headers["ikebana-as-of" if "changes" not in path else "ikebana-upto"]
        return pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()

    assert table(f"{WHERE}/scan").to_pylist() == [
        {"key": None, "value": b"\xff", "count": 2},
        {"key": b'{"id":"N1","n":1}', "value": b'"JFK"', "count": 1},
    ]
    assert table(f"{PLANES}/changes?above=2").column("diff").to_pylist() == [-1, 1]
    assert table(f"{PLANES}/get?key=nothing").num_rows == 0


def test_a_count_beyond_64_bits_is_in_json_alone(client: TestClient, topics: MemoryTopics) -> None:
    """A column of an Arrow stream has 64 bits; changes come in pieces."""
    topics.close(WHERE, 30, *[(b"9", b"1", 20, LARGEST)] * 2)
    _get(client, "wait", collection=WHERE, time=29)
    path = f"collections/{WHERE}"
    headers = {"Accept": ARROW}

    found = _get(client, f"{path}/get", key="9")["values"]
    refused = client.get(f"/v1/{path}/get?key=9", headers=headers)
    stream = client.get(f"/v1/{path}/changes?above=19&upto=29", headers=headers).content

    assert found == [{"value": 1, "count": 2 * LARGEST}]
    assert refused.status_code == 400
    assert "a count is beyond 64 bits" in refused.json()["error"]
    diffs = pa.ipc.open_stream(stream).read_all().column("diff").to_pylist()
    assert diffs == [LARGEST, LARGEST]


def test_a_query_is_answered_as_of_a_time(client: TestClient) -> None:
    """In rows, or as an Arrow stream."""
    body = {"query": "SELECT key, seats FROM planes ORDER BY key", "as_of": "11"}
    found = client.post("/v1/sql", json=body).json()
    assert found == {
        "as_of": 11,
        "columns": [{"name": "key", "type": "string"}, {"name": "seats", "type": "int64"}],
        "rows": [["N1", 4], ["N2", 8]],
    }
    stream = client.post("/v1/sql", json=body, headers={"Accept": ARROW}).content
    assert pa.ipc.open_stream(stream).read_all().column("seats").to_pylist() == [4, 8]
    refused = client.post("/v1/sql", json={"query": "SELECT * FROM read_text('/etc/passwd')"})
    assert (refused.status_code, "read_text" in refused.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("TIMESTAMP 'infinity'", "infinity"),
        ("DATE '-infinity'", "-infinity"),
        ("DATE '290000-01-01'", "290000-01-01"),
        ("DATE '0044-03-15 (BC)'", "-0043-03-15"),
        ("TIMESTAMP '0044-03-15 (BC) 12:00:00'", "-0043-03-15T12:00:00"),
        ("TIMESTAMP_NS '2024-02-29 12:00:00.000000001'", "2024-02-29T12:00:00.000000001"),
        ("TIMESTAMP '2024-02-29 12:00:00'", "2024-02-29T12:00:00"),
        ("[DATE 'infinity', DATE '2024-02-29', NULL]", ["infinity", "2024-02-29", None]),
        ("{'a': TIMESTAMPTZ '-infinity'}", {"a": "-infinity"}),
        ("MAP {1: DATE 'infinity'}", [[1, "infinity"]]),
        ("[TIME '24:00:00']", ["24:00:00"]),
        ("TIME '12:00:00.5'", "12:00:00.500000"),
        ("TIME_NS '12:00:00.000000001'", "12:00:00.000000001"),
        ("TIMETZ '12:00:00+05:30'", "12:00:00+05:30"),
        ("INTERVAL '1 month -2 days'", "1 month -2 days"),
        ("340282366920938463463374607431768211455::UHUGEINT", str(2**128 - 1)),
    ],
)
def test_values_that_python_does_not_have_are_text(
    client: TestClient, expression: str, expected: Any
) -> None:
    """In JSON; an Arrow stream has dates and times as they are."""
    found = client.post("/v1/sql", json={"query": f"SELECT {expression} AS t"})

    assert (found.status_code, found.json().get("rows")) == (200, [[expected]]), found.text


def _resumed(position: Position) -> str:
    return f"subscribe?resume={position.token()}"


def _paged(time: int, part: int) -> str:
    place = msgspec.msgpack.encode(((0, 19), (None, None, None), b"", (time, part)))
    token = base64.urlsafe_b64encode(place).decode().rstrip("=")
    return f"collections/{PLANES}/changes?above=0&page={token}"


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("collections/plane", 404, 'there is no collection "plane"; did you mean "planes"?'),
        ("collections/planes/get", 400, "give `key` or `key_base64`"),
        ("collections/planes/get?key=1&as_of=20", 409, "has the times from 0 to 19"),
        ("collections/planes/get?key=1&as_of=-1", 410, "has the times from 0 to 19"),
        ("collections/planes/get?key=1&as_of=soon", 400, '"soon" is no time'),
        ("collections/planes/get?key=1&at=3", 400, 'there is no parameter "at" here'),
        ("collections/planes/get?key_base64=!", 400, "it is not base64"),
        ("collections/planes/get?key=1&encoding=xml", 400, "Invalid enum value"),
        ("collections/planes/scan?limit=0", 400, "Expected `int` >= 1"),
        ("collections/planes/scan?limit=100000", 400, "Expected `int` <= 10000"),
        ("collections/planes/scan?page=xyz", 400, "its token is none"),
        (_paged(2, -1), 400, "its token is none"),
        (_paged(2, 2**32), 400, "its token is none"),
        (_paged(2**63, 0), 400, "its token is none"),
        ("collections/planes/changes", 400, "give `above`"),
        ("collections/planes/changes?above=-5", 410, "has the times from 0 to 19"),
        ("wait?time=99&timeout=0", 408, "waited 0 s for time 99"),
        ("subscribe?resume=xyz", 400, "the token is none of an event"),
        (_resumed(Position([PLANES], 5, -3)), 400, "the token is none of an event"),
        (_resumed(Position([PLANES], 5, 0, topics=[])), 400, "the token is none of an event"),
        ("subscribe?as_of=99", 409, "has the times from 0"),
        ("subscribe?collection=nothing", 404, 'no collection "nothing"'),
    ],
)
def test_a_refusal_has_a_status_a_reason_and_the_bounds(
    client: TestClient, path: str, status: int, reason: str
) -> None:
    """In JSON."""
    answer = client.get(f"/v1/{path}")

    assert answer.status_code == status, answer.text
    assert reason in answer.json()["error"]
    if status in (409, 410):
        assert (answer.json()["since"], answer.json()["upper"]) in [(0, 20), (0, 15)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"keys":3}', 400),
        (b'{"keys_base64":["!"]}', 400),
        (b'"\xff"', 400),
        (b"[" * 5_000, 400),
        (b'{"keys":[' + b"1," * 600_000 + b"1]}", 413),
    ],
)
def test_a_body_that_is_wrong_or_too_large_is_refused(
    client: TestClient, body: bytes, status: int
) -> None:
    """Before anything is read for it."""
    answer = client.post(f"/v1/collections/{PLANES}/get", content=body)

    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "planes%2f..%2fplanes", "%00", "planes/../../etc", "a" * 9_999]
)
def test_a_name_of_a_client_is_never_a_path(client: TestClient, name: str) -> None:
    """It is looked up among the names that there are."""
    assert client.get(f"/v1/collections/{name}/get?key=1").status_code == 404


def test_a_token_is_asked_for_where_there_is_one(service: Service) -> None:
    """Everywhere but at the probes."""
    with _client(service, AccessLimits(Access.of_tokens(("secret", "other")))) as client:
        for given, status in (
            (None, 401),
            ("Bearer wrong", 401),
            ("Bearer secre", 401),
            ("Basic secret", 401),
            ("Bearer secret", 200),
            ("Bearer other", 200),
        ):
            headers = {} if given is None else {"Authorization": given}
            for path in ("/v1/collections", "/v1/newest", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == status
        for path in ("/live", "/ready", "/metrics"):
            assert client.get(path).status_code == 200


def test_a_page_of_another_name_cannot_ask_without_a_token(service: Service) -> None:
    """A name that points here is not our address."""
    with _client(service) as client:
        for host, status in (
            ("evil.example:80", 403),
            ("localhost:8080", 200),
            ("127.0.0.1", 200),
            ("[::1]:8080", 200),
            ("127.0.0.1.evil.example", 403),
        ):
            found = client.get("/v1/collections", headers={"Host": host})
            assert found.status_code == status, host


def test_a_scraper_that_names_no_version_gets_some_format(client: TestClient) -> None:
    """Its header is not ours to trust."""
    found = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=x"})

    assert (found.status_code, "ikebana_served_frontier" in found.text) == (200, True)


def test_the_probes_and_metrics_say_how_the_collections_stand(client: TestClient) -> None:
    """By name."""
    assert client.get("/live").text == "following\n"
    told = client.get("/ready").json()
    assert told["ready"] is True
    assert told["collections"][PLANES]["upper"] == 20
    metrics = client.get("/metrics").text
    assert f'ikebana_served_frontier{{collection="{PLANES}"}} 20.0' in metrics
    assert f'ikebana_served_updates_total{{collection="{PLANES}"}} 4.0' in metrics
    assert "process_cpu_seconds_total" in metrics


def test_a_frontier_ahead_of_the_clock_has_no_lag_anywhere(tmp_path: Path) -> None:
    """It can be ahead, because it is beyond the newest time, or the clocks differ."""
    topics = MemoryTopics()
    topics.close("ahead", EPOCH_MS[-1], (b"1", b"{}", EPOCH_MS[0], 1))
    with serving(topics, tmp_path, "ahead") as service:
        caught_up(service, topics, "ahead")
        with _client(service) as client:
            metrics = client.get("/metrics").text
            answered = client.get("/v1/collections/ahead").json()

    assert answered["lag_s"] == 0.0
    assert 'ikebana_served_lag_seconds{collection="ahead"} 0.0' in metrics


def test_values_of_many_keys_have_a_bound(tmp_path: Path) -> None:
    """As a page has one: whoever asks for more has to ask for fewer keys."""
    topics = MemoryTopics()
    large = b'"%b"' % (b"x" * (2 << 20))
    topics.close("large", 10, *((b"%d" % number, large, 1, 1) for number in range(9)))
    with serving(topics, tmp_path, "large") as service:
        caught_up(service, topics, "large")
        with _client(service) as client:
            refused = client.post("/v1/collections/large/get", json={"keys": [*range(9)]})
            some = client.post("/v1/collections/large/get", json={"keys": [*range(7)]})

    assert (refused.status_code, some.status_code) == (413, 200)
    assert "more than 16,777,216 bytes" in refused.json()["error"]


def test_every_read_of_python_is_one_over_http() -> None:
    """And the other way, but for what only a server has."""
    methods = {name for name in vars(Reads) if not name.startswith("_")} - {"close"}
    routes = {each.name for each in OPERATIONS} - {"collection", "history", "plan"}

    assert {"scan" if name == "page" else name for name in methods} == routes
    assert {each.name for each in READS.values()} <= routes


def test_the_document_names_every_route(client: TestClient) -> None:
    """And every reference in it leads somewhere."""
    document = client.get("/openapi.json").json()

    routes = {each.path for each in OPERATIONS} | {"/v1/subscribe"}
    assert set(document["paths"]) == routes
    schemas = document["components"]["schemas"]
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    scan = document["paths"]["/v1/collections/{name}/scan"]["get"]
    assert {"name", "prefix", "limit", "page", "as_of"} <= {p["name"] for p in scan["parameters"]}


def _references(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for name, each in found.items():
            if name == "$ref":
                yield each
            else:
                yield from _references(each)
    elif isinstance(found, list):
        for each in found:
            yield from _references(each)


# Subscriptions are read from their generator: the test client gives a stream when it has ended.


def _subscribed(
    service: Service,
    given: Subscribe,
    until: Callable[[list[tuple[str, str, Any]]], bool],
    between: Callable[[list[tuple[str, str, Any]]], None] = lambda _: None,
) -> list[tuple[str, str, Any]]:
    """Read events (name, id, data) until a condition holds."""

    async def read() -> list[tuple[str, str, Any]]:
        subscriptions = Callers(service).of(EVERYTHING).subscriptions
        found: list[tuple[str, str, Any]] = []
        events = subscriptions.events(subscriptions.begin(given), given.encoding)
        async for event in events:
            found.append(_event(event))
            between(found)
            if until(found):
                await _closed(events)
                return found
        return found

    return asyncio.run(asyncio.wait_for(read(), patient(20)))


async def _closed(events: AsyncIterator[bytes]) -> None:
    await events.aclose()  # type: ignore[attr-defined]


def _event(raw: bytes) -> tuple[str, str, Any]:
    fields: dict[str, str] = {}
    for line in raw.decode().strip().split("\n"):
        name, _, text = line.partition(": ")
        fields[name] = fields.get(name, "") + text
    return fields["event"], fields.get("id", ""), json.loads(fields["data"])


def test_a_subscription_is_the_collection_and_then_its_batches(
    service: Service, topics: MemoryTopics
) -> None:
    """All collections at one frontier."""

    def then(found: list[Any]) -> None:
        if len(found) == 2:
            topics.close(WHERE, 40, (b'"N7"', b"1", 16, 1))

    found = _subscribed(service, Subscribe(), lambda found: len(found) >= 3, then)

    assert [name for name, _, _ in found] == ["snapshot", "snapshot", "batch"]
    first, second, batch = (data for _, _, data in found)
    assert [row["key"] for row in first["rows"]] == ["N1", "N2"]
    assert (first["as_of"], first["last"], second["last"]) == (14, False, True)
    assert (batch["lower"], batch["upper"]) == (15, 20)
    assert [update["key"] for update in batch["updates"][WHERE]] == ["N7"]
    assert batch["updates"][PLANES] == []


def test_a_subscription_goes_on_after_any_of_its_events(
    service: Service, topics: MemoryTopics
) -> None:
    """What two subscribers get is what one would have got."""
    for number in range(3):
        topics.close(WHERE, 20 + number, (b"%d" % number, b"1", 19 + number, 1))
    topics.close(PLANES, 30)
    caught_up(service, topics, PLANES, WHERE)

    def upto_22(found: list[Any]) -> bool:
        return bool(found[-1][0] == "batch" and found[-1][2]["upper"] == 22)

    given = Subscribe(as_of="3", collection=[WHERE, PLANES])
    whole = _subscribed(service, given, upto_22)
    assert [name for name, _, _ in whole] == ["snapshot", "snapshot", "batch"]
    for cut in range(1, len(whole)):
        rest = _subscribed(service, Subscribe(resume=whole[cut - 1][1]), upto_22)
        assert rest == whole[cut:]


def test_a_token_whose_history_is_gone_is_refused(topics: MemoryTopics, tmp_path: Path) -> None:
    """By name, with the bounds, so that the subscriber begins anew."""
    keep = Retention(5, is_duration=False)
    with serving(topics, tmp_path, PLANES, retention=keep) as service:
        caught_up(service, topics, PLANES)
        [(_, token, _)] = _subscribed(service, Subscribe(), lambda found: True)
        topics.close(PLANES, 50)
        caught_up(service, topics, PLANES)
        with _client(service) as client:
            found = client.get("/v1/subscribe", params={"resume": token})
            assert found.status_code == 410
            assert (found.json()["since"], found.json()["upper"]) == (44, 50)


def test_subscribers_are_limited(service: Service) -> None:
    """Each holds a connection."""
    with _client(service, AccessLimits(subscribers=0)) as client:
        found = client.get("/v1/subscribe")
        assert (found.status_code, found.json()["error"]) == (
            503,
            "there are 0 subscribers already",
        )
