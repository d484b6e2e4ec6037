"""What a token may see: no read, and nothing that a client can make up, shows anything else."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ikebana
from ikebana.errors import AccessError, AwayError, ConfigError
from ikebana.processor.base.listening import Tls
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.serve import serve_command
from ikebana.processor.watching import guard
from ikebana.processor.watching.console import PlanView
from ikebana.processor.watching.guard import EVERYTHING, Access, AccessLimits, Grant, RateLimit
from ikebana.serving.reads import rows
from ikebana.serving.service import Permitted, Service
from ikebana.serving.subscriptions import Position
from ikebana.serving.view import ArrangementView, Bounds, Places, permitted_fields
from ikebana.serving.wire import ARROW
from support.certificates import Authority
from support.http_answers import answer
from support.served_collections import Batch, Oracle, arrangement, closed
from support.served_topics import MemoryTopics, answering, caught_up, serving

# Nothing that a reader of the columns id and city gets has this word.
SECRET = "hidden"
# Everybody's pay begins like this: no time and no figure of an answer has so many digits
# by chance.
PAY = 918_273_645_546_370_000
FILE = """
tokens:
- name: all
  token: all-of-it
  collections: all
- name: some
  token: some-of-it
  collections:
    people:
      columns: [id, city]
    loose:
      columns: [city]
    places: all
- name: hashed
  token_sha256: 96f0eb0fd8f3c8bb91ef0d7a5e14e3b7ff3c9d7d6a43ac7ba4dd84d2a7a2a6e1
  collections: [places]
  requests_per_second: 2
  subscriptions: 1
"""


def _row(number: int, word: str = SECRET) -> bytes:
    fields = {"city": f"c{number}", "id": number, "note": f"{word}-{number}", "pay": PAY + number}
    return json.dumps(fields, separators=(",", ":")).encode()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """People with columns that are not for all, others without keys, places, and secrets."""
    topics = MemoryTopics()
    topics.close("people", 10, *((b"%d" % n, _row(n), 1, 1) for n in range(9)))
    changed = ((b"1", _row(1), 12, -1), (b"1", _row(1, SECRET + "2"), 12, 1))
    topics.close("people", 20, *changed, (b"8", b'"hidden text"', 13, 1))
    topics.close("loose", 20, *((None, _row(n), 1, 1) for n in range(9)))
    topics.close("places", 20, (b'"c1"', b'{"name":"one"}', 1, 1))
    topics.close("hidden-plans", 20, (b"1", b'{"hidden":1}', 1, 1))
    names = ("people", "loose", "places", "hidden-plans")
    with serving(topics, tmp_path / "data", *names) as found:
        caught_up(found, topics, *names)
        yield found


@pytest.fixture
def tokens(tmp_path: Path) -> Access:
    """What the file of tokens says."""
    path = tmp_path / "tokens.yaml"
    path.write_text(FILE)
    return guard.read_access(path)


@pytest.fixture
def url(service: Service, tokens: Access) -> Iterator[str]:
    """A server of them."""
    plan = PlanView("hidden-pipeline", "f", "ingest", {}, [])
    with answering(service, AccessLimits(tokens), lambda: plan) as found:
        yield found


def _ask(
    url: str,
    path: str,
    token: str | None = "some-of-it",
    body: Any = None,
    accept: str | None = None,
) -> tuple[int, str]:
    """Return status and text of an answer with its headers."""
    headers = {} if accept is None else {"Accept": accept}
    found = answer(url + path, body, token, headers)
    return found.status, f"{found.headers}{found.body.decode('latin-1')}"


def _page(begin: bytes, time: int = 19) -> str:
    place = msgspec.msgpack.encode(((time, time), (None, None, None), begin, (0, 0)))
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


PEOPLE = "/v1/collections/people"
LOOSE = "/v1/collections/loose"
HIDDEN = "/v1/collections/hidden-plans"
# All that answers, and all that somebody may think of.
TRIED: list[tuple[str, Any]] = [
    ("/v1/collections", None),
    (PEOPLE, None),
    (f"{PEOPLE}/get?key=1", None),
    (f"{PEOPLE}/get?key=8", None),
    (f"{PEOPLE}/get?key=1&as_of=5", None),
    (f"{PEOPLE}/get?key=1&encoding=base64", None),
    (f"{PEOPLE}/get", {"keys": [1, 2, 8]}),
    (f"{PEOPLE}/scan", None),
    (f"{PEOPLE}/scan?as_of=5&limit=2", None),
    (f"{PEOPLE}/scan?page={_page(b'')}", None),
    (f"{PEOPLE}/count", None),
    (f"{PEOPLE}/count?prefix=1", None),
    (f"{PEOPLE}/changes?above=0", None),
    (f"{LOOSE}/scan?limit=2", None),
    (f"{LOOSE}/scan?limit=2&encoding=base64", None),
    (f"{LOOSE}/scan?prefix=%7B", None),
    (f"{LOOSE}/changes?above=0&limit=1", None),
    (f"{LOOSE}/count", None),
    (f"{HIDDEN}", None),
    (f"{HIDDEN}/get?key=1", None),
    (f"{HIDDEN}/get", {"keys": [1]}),
    (f"{HIDDEN}/scan", None),
    (f"{HIDDEN}/scan?page={_page(b'')}", None),
    (f"{HIDDEN}/count", None),
    (f"{HIDDEN}/changes?above=0", None),
    ("/v1/collections/hidden-plan/get?key=1", None),
    ("/v1/newest", None),
    ("/v1/newest?collection=hidden-plans", None),
    ("/v1/wait?time=1&collection=hidden-plans", None),
    ("/v1/plan", None),
    ("/v1/history", None),
    ("/ready", None),
    ("/metrics", None),
    ("/v1/subscribe?collection=hidden-plans", None),
    ("/v1/sql", {"query": "SELECT * FROM people"}),
    ("/v1/sql", {"query": "SELECT * FROM people", "as_of": "5"}),
    ("/v1/sql", {"query": "SELECT * FROM people WHERE key = 1"}),
    ("/v1/sql", {"query": "SELECT note FROM people"}),
    ("/v1/sql", {"query": "SELECT pay FROM people"}),
    ("/v1/sql", {"query": "SELECT p FROM people p"}),
    ("/v1/sql", {"query": "SELECT to_json(p) FROM people p"}),
    ("/v1/sql", {"query": "SELECT COLUMNS('.*') FROM people"}),
    ("/v1/sql", {"query": "SELECT * FROM loose"}),
    ("/v1/sql", {"query": 'SELECT * FROM "hidden-plans"'}),
    ("/v1/sql", {"query": 'SELECT 1 WHERE EXISTS (FROM "hidden-plans")'}),
    ("/v1/sql", {"query": 'SELECT * FROM "hidden-plan"'}),
    ("/v1/sql", {"query": "SELECT * FROM duckdb_tables()"}),
]


@pytest.mark.parametrize("accept", [None, ARROW], ids=["json", "arrow"])
def test_no_read_shows_what_a_token_may_not_see(url: str, accept: str | None) -> None:
    """Not a value, not a name, and no length of it either."""
    shown_ = [
        _ask(url, path, "all-of-it", body, accept)[1]
        for path, body in TRIED
        # It has no end.
        if "subscribe" not in path
    ]
    assert sum(SECRET in text for text in shown_) > 20
    assert sum(str(PAY)[:-4] in text for text in shown_) > 10
    for path, body in TRIED:
        status, text = _ask(url, path, "some-of-it", body, accept)
        asked = f"{path}{json.dumps(body)}"
        # The name that was asked for is told in the refusal.
        text = text.replace('\\"hidden-plans\\"', "").replace('\\"hidden-plan\\"', "")
        text = text.replace("hidden-plans", "") if "hidden-plans" in asked else text
        assert SECRET not in text, (path, body, text)
        for part in chain.from_iterable(_base64(text)):
            assert SECRET.encode() not in part, (path, body, text)
        # Nobody's pay.
        assert str(PAY)[:-4] not in text, (path, body, text)
        if "hidden" in path:
            assert status == 404, (path, status)


def _base64(text: str) -> Iterator[list[bytes]]:
    """Whatever can be read of the words of a text as base64."""
    for word in text.replace('"', " ").replace(",", " ").split():
        for decode in (base64.b64decode, base64.urlsafe_b64decode):
            try:
                yield [decode(word + "=" * (-len(word) % 4))]
            except ValueError:
                continue


def test_what_a_token_may_see_is_read_as_ever(url: str) -> None:
    """The columns, the collections, the plan of who may see all."""
    with ikebana.connect(url, token="some-of-it") as served:
        assert [each.name for each in served.collections()] == ["loose", "people", "places"]
        assert served.get("people", b"1") == {b'{"city":"c1","id":1}': 1}
        assert served.get("people", b"8") == {b'{"city":"c8","id":8}': 1, b"{}": 1}
        assert served.get("places", b'"c1"') == {b'{"name":"one"}': 1}
        found = served.sql("SELECT people.*, name FROM people JOIN places ON city = places.key")
        assert found.to_pylist() == [{"key": 1, "city": "c1", "id": 1, "name": "one"}]
        assert served.count("people").data == 10
        # The change was of a column that is not seen.
        assert [u.key for u in served.changes("people", 10).updates] == [b"8"]
        whole = list(rows(served, "loose", limit=2))
        assert sorted(value for _, state in whole for value in state) == [
            b'{"city":"c%d"}' % n for n in range(9)
        ]
        info = {each.name: each for each in served.collections()}
        assert (info["people"].bytes, info["people"].keys) == (None, 9)
        assert info["places"].bytes == 18
    assert "hidden-pipeline" in _ask(url, "/v1/plan", "all-of-it")[1]
    assert _ask(url, "/v1/plan")[0] == 403


def test_a_subscription_has_only_what_its_token_sees(url: str, tokens: Access) -> None:
    """Also by a token of another's event."""
    taken = Position(["people", "hidden-plans"], 10, 0).token()
    assert _ask(url, f"/v1/subscribe?resume={taken}")[0] == 404
    assert _ask(url, f"/v1/subscribe?resume={Position([], 10, 0).token()}")[0] == 400
    for names, token in (
        ("people", Position(["people"], 5, 0).token()),
        ("loose", Position(["loose"], 5, 0, b"\x00" + b"\xff" * 8).token()),
    ):
        headers = {"Authorization": "Bearer some-of-it"}
        path = f"{url}/v1/subscribe?resume={token}"
        with urllib.request.urlopen(urllib.request.Request(path, headers=headers)) as events:
            text = b"".join(events.readline() for _ in range(8)).decode()
        assert names in text
        assert SECRET not in text


def test_a_token_without_collections_is_told_so(service: Service, tmp_path: Path) -> None:
    """By every read of all that there are."""
    path = tmp_path / "tokens.yaml"
    path.write_text("tokens: [{name: none, token: none, collections: []}]")
    with answering(service, AccessLimits(guard.read_access(path))) as url:
        for read in ("newest", "wait?time=1", "subscribe", "subscribe?as_of=5"):
            status, told = _ask(url, f"/v1/{read}", "none")
            assert (status, "there is no collection here" in told) == (404, True), read


def test_probes_tell_names_to_those_who_may_see_them(url: str) -> None:
    """They answer everybody."""
    status, told = _ask(url, "/ready", None)
    assert (status, "people" in told, "true" in told) == (200, False, True)
    status, told = _ask(url, "/metrics", None)
    assert (status, "people" in told, "process_cpu" in told) == (200, False, True)
    told = _ask(url, "/metrics")[1]
    assert 'ikebana_served_frontier{collection="people"}' in told
    assert 'ikebana_served_bytes{collection="places"}' in told
    assert 'bytes{collection="people"}' not in told
    assert 'bytes{collection="people"}' in _ask(url, "/metrics", "all-of-it")[1]


def test_a_token_that_asks_too_often_has_to_wait(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others need not; and so do those who guess."""
    # A slow machine sends fewer requests than the usual number in a second.
    monkeypatch.setattr(guard, "_GUESSES", 0.001)
    slow = Grant("slow", None, rate=0.001)
    quick = Grant("quick")
    digest = guard.Access.of_tokens(["a", "b"]).grants or {}
    tokens = Access(dict(zip(digest, (slow, quick), strict=True)))
    with answering(service, AccessLimits(tokens)) as url:
        assert _ask(url, "/v1/newest", "a")[0] == 200
        status, told = _ask(url, "/v1/newest", "a")
        assert (status, "retry-after: " in told) == (429, True)
        assert _ask(url, "/v1/newest", "b")[0] == 200
        assert [_ask(url, "/v1/newest", "guess")[0] for _ in range(2)] == [401, 429]
        assert _ask(url, "/v1/newest", "b")[0] == 200
    with answering(service, AccessLimits(rate=0.001)) as url:
        assert [_ask(url, "/v1/newest", None)[0] for _ in range(2)] == [200, 429]
        assert _ask(url, "/live", None)[0] == 200


def test_rates_are_counted_by_a_clock() -> None:
    """A client may make as many requests at once as come in a second."""
    now = [0.0]
    rates = RateLimit(lambda: now[0])
    assert [rates.wait("a", 2) for _ in range(3)] == [0, 0, 0.5]
    assert rates.wait("b", 2) == 0
    now[0] = 0.5
    assert [rates.wait("a", 2) for _ in range(2)] == [0, 0.5]
    assert rates.wait("a", None) == 0
    for number in range(20_000):
        rates.wait(str(number), 1)
    assert len(rates._buckets) == 10_000


def test_subscriptions_of_a_token_are_limited(service: Service) -> None:
    """Each holds a connection."""
    [digest] = Access.of_tokens(["t"]).grants or {}
    with answering(service, AccessLimits(Access({digest: Grant("t", None, None, 1)}))) as url:
        headers = {"Authorization": "Bearer t"}
        request = urllib.request.Request(f"{url}/v1/subscribe", headers=headers)
        with urllib.request.urlopen(request) as events:
            assert events.readline() == b"event: snapshot\n"
            assert _ask(url, "/v1/subscribe", "t")[0] == 429


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tokens: []", "it has none"),
        ("tokens: [", "it is not YAML in line 1"),
        ("tokens: [{name: a, token: b}]", "missing required field `collections`"),
        ("tokens: [{name: a, collections: all}]", '"a" needs `token` or `token_sha256`'),
        ("tokens: [{name: a, token: 'a b', collections: all}]", '"a" is no word of ASCII'),
        ("tokens: [{name: a, token: '', collections: all}]", '"a" is no word of ASCII'),
        ("tokens: [{name: a, token_sha256: abc, collections: all}]", '"a" is no SHA-256'),
        ("tokens: [{name: a, token: b, collections: most}]", "Invalid enum value"),
        ("tokens: [{name: a, token: b, collections: {x: {column: [y]}}}]", "unknown field"),
        ("tokens: [{name: a, token: b, collections: all, requests_per_second: 0}]", "not more"),
        ("tokens: [{name: a, token: b, collections: all, requests_per_second: .nan}]", "finite"),
        ("tokens: [{name: a, token: b, collections: all, requests_per_second: .inf}]", "finite"),
        (
            "tokens: [{name: a, token: b, collections: all},"
            " {name: a, token: c, collections: all}]",
            '"a" is there twice',
        ),
        (
            "tokens: [{name: a, token: b, collections: all},"
            " {name: c, token: b, collections: all}]",
            '"c" is there twice',
        ),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """By name; its tokens are in no message."""
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        guard.read_access(path)
    assert reason in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_names_collections_that_there_are(tokens: Access, tmp_path: Path) -> None:
    """A misspelt one would show nothing."""
    tokens.check(["people", "loose", "places", "more"])
    with pytest.raises(ConfigError, match=r'"some" names a collection "people" .* "peoples"'):
        tokens.check(["peoples", "loose", "places"])
    lines = tmp_path / "tokens"
    lines.write_text("one\n\ntwo\n")
    assert guard.read_access(lines).of("two") == Grant("token-2")
    assert guard.read_access(lines).of("three") is None
    lines.write_text("one people\n")
    with pytest.raises(ConfigError, match="more than a token"):
        guard.read_access(lines)


def test_no_token_has_the_rights_of_nobody_by_its_name(service: Service, tmp_path: Path) -> None:
    """Or of anyone."""
    path = tmp_path / "tokens.yaml"
    entry = "{{name: {0}, token: {0}, collections: [places]}}"
    path.write_text(f"tokens: [{entry.format('anyone')}, {entry.format('nobody')}]")
    with answering(service, AccessLimits(guard.read_access(path))) as url:
        assert "people" not in _ask(url, "/ready", None)[1]
        for token in ("nobody", "anyone"):
            assert "places" in _ask(url, "/v1/collections", token)[1]
            assert _ask(url, f"{PEOPLE}/count", token)[0] == 404


def _certificates(folder: Path) -> tuple[Authority, Tls]:
    authority = Authority("served")
    ours = authority.certified("localhost")
    (folder / "ca.pem").write_text(authority.certificate)
    (folder / "cert.pem").write_text(ours.certificate)
    (folder / "key.pem").write_text(ours.key)
    return authority, Tls(folder / "cert.pem", folder / "key.pem")


def _trusting(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.check_hostname = False
    return context


def test_it_answers_over_tls(service: Service, tmp_path: Path) -> None:
    """To who trusts its certificate; older protocols are refused."""
    _, tls = _certificates(tmp_path)
    with answering(service, tls=tls) as url:
        assert url.startswith("https://")
        with ikebana.connect(url, tls=_trusting(tmp_path)) as served:
            assert served.get("places", b'"c1"')
        with ikebana.connect(url) as served, pytest.raises(AwayError, match="CERTIFICATE"):
            served.newest()


def test_a_query_is_asked_over_tls_with_a_certificate(service: Service, tmp_path: Path) -> None:
    """By `ikebana sql`, which says what is wrong with its files."""
    authority, tls = _certificates(tmp_path)
    client = authority.certified("client")
    (tmp_path / "client.pem").write_text(client.certificate + client.key)
    with answering(service, tls=tls._replace(client_ca=tmp_path / "ca.pem")) as url:
        asked = ["sql", "SELECT name FROM places", "--url", url.replace("127.0.0.1", "localhost")]
        found = CliRunner().invoke(
            cli, [*asked, f"--tls-ca={tmp_path}/ca.pem", f"--tls-cert={tmp_path}/client.pem"]
        )
        assert (found.exit_code, found.output) == (0, '{"name":"one"}\n')
        found = CliRunner().invoke(cli, [*asked, f"--tls-ca={tmp_path}/no.pem"])
        assert (found.exit_code, "no.pem" in str(found.exception)) == (1, True)


def test_a_client_shows_a_certificate_where_one_is_asked_for(
    service: Service, tmp_path: Path
) -> None:
    """One that the right authority has signed."""
    authority, tls = _certificates(tmp_path)
    with answering(service, tls=tls._replace(client_ca=tmp_path / "ca.pem")) as url:
        for signs, good in ((None, False), (Authority("served"), False), (authority, True)):
            context = _trusting(tmp_path)
            if signs is not None:
                shown_ = signs.certified("client")
                (tmp_path / "client.pem").write_text(shown_.certificate + shown_.key)
                context.load_cert_chain(tmp_path / "client.pem")
            with ikebana.connect(url, tls=context) as served:
                if good:
                    assert served.newest("places") == 19
                else:
                    with pytest.raises(AwayError):
                        served.newest("places")


def test_a_certificate_that_cannot_be_used_is_refused(service: Service, tmp_path: Path) -> None:
    """With its file."""
    _, tls = _certificates(tmp_path)
    for wrong in (
        Tls(tmp_path / "none.pem"),
        Tls(tls.certificate),
        tls._replace(client_ca=tmp_path / "none.pem"),
        tls._replace(client_ca=tls.key),
    ):
        with pytest.raises(ConfigError, match=r"\.pem"), answering(service, tls=wrong):
            pass


def test_a_wrong_token_is_told_to_the_client(url: str) -> None:
    """As an error of access."""
    with ikebana.connect(url, token="wrong") as served, pytest.raises(AccessError):
        served.newest()


OBJECTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "ä", '"']), st.none() | st.integers() | st.text(max_size=3)
)


@given(OBJECTS, st.sets(st.sampled_from(["a", "b", "ä", '"'])))
def test_a_value_is_shown_with_its_permitted_fields(
    found: dict[str, Any], columns: set[str]
) -> None:
    """Whatever the value is."""
    expected = {name: value for name, value in found.items() if name in columns}
    for raw in (json.dumps(found), json.dumps(found, ensure_ascii=False)):
        assert json.loads(permitted_fields(raw.encode(), frozenset(columns))) == expected
        for other in (f"[{raw}]", raw[:-1], f"{raw} x"):
            assert permitted_fields(other.encode(), frozenset(columns)) == b"{}"


SMALL = st.builds(
    lambda a, b: json.dumps({"a": a, "b": b}).encode(), st.integers(0, 2), st.integers(0, 2)
)
UPDATES = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"1", b"2"]),
        SMALL,
        st.integers(1, 9),
        st.sampled_from([1, 2]),
    ),
    max_size=20,
)


@given(UPDATES, st.integers(1, 9), st.integers(1, 4))
def test_reads_of_columns_are_reads_of_projected_updates(
    tmp_path_factory: pytest.TempPathFactory, updates: list[Any], time: int, most: int
) -> None:
    """The projection of the collection is what the projections of its updates add up to."""
    columns = frozenset({"a"})
    oracle = Oracle()
    batch = Batch(0, 10, [KeyedUpdate(*update) for update in updates])
    oracle.add(
        [
            update._replace(value=permitted_fields(update.value, columns))
            for update in batch.updates
        ]
    )
    made = arrangement(tmp_path_factory.mktemp("columns"), 100)
    try:
        made.apply(closed(batch, 0))
        for places in (Places(), _Forgetful()):
            view = made.view().of_columns(columns, places)
            assert _counts(_paged(view, time, most)) == oracle.collection(time)
            assert _counts(view.rows(Bounds(), time)) == oracle.collection(time)
            for key in (b"1", b"2"):
                assert view.get(key, time) == oracle.values(key, time)
                assert view.get_many([key], time) == [oracle.values(key, time)]
            found = Oracle()
            found.add(view.changes(0, 9, None, 2**60).updates)
            assert found.collection(time) == oracle.collection(time)
    finally:
        made.close()


class _Forgetful(Places):
    """Remembers nothing, as a server that was started anew."""

    def get(self, place: tuple[str, int, int]) -> bytes | None:
        """Return nothing."""
        return None


def _paged(view: ArrangementView, time: int, most: int) -> Iterator[tuple[bytes | None, Any]]:
    begin = None
    while True:
        page = view.page(Bounds(), time, begin, most)
        yield from page.rows
        if (begin := page.then) is None:
            return


def _counts(found: Any) -> dict[tuple[bytes | None, bytes], int]:
    counts: dict[tuple[bytes | None, bytes], int] = {}
    for key, state in found:
        for value, count in state.items():
            counts[key, value] = counts.get((key, value), 0) + count
    return counts


def test_a_service_without_tokens_is_whole(service: Service) -> None:
    """Nothing is wrapped."""
    assert isinstance(Permitted(service, EVERYTHING).view("people"), ArrangementView)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_another_address_than_ones_own_needs_to_know_who_asks(host: str) -> None:
    """Or to be told that anyone may read."""
    found = CliRunner().invoke(serve_command, ["things", f"--http={host}:0"])

    assert isinstance(found.exception, ConfigError)
    assert "--token-file or --tls-client-ca, or --anyone" in str(found.exception)


def test_files_of_tls_come_together(tmp_path: Path) -> None:
    """A key alone would leave the address without TLS."""
    found = CliRunner().invoke(serve_command, ["things", f"--tls-key={tmp_path}"])

    assert "need --tls-cert" in str(found.exception)
