"""check, snapshot and follow over topics on a broker, and the consumer of the docs."""

import datetime
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.errors import error_record
from ikebana.processor.kafka import topics
from support.waiting import patient, wait_until
from support.written_topics import FIRST, SECOND, Command, Row, Written

pytestmark = pytest.mark.kafka

READING = Path(__file__).resolve().parents[2] / "docs" / "reading.md"
COMMAND = [sys.executable, "-c", "from ikebana.processor.cli.main import main; main()"]


@pytest.fixture
def people(written: Written) -> Written:
    """Two closed batches, aborted transactions around them, and one update not closed yet."""
    written.aborted([(0, b'"nobody"', b"1", 2, 1), (1, b'"nobody"', b"1", 2, 1)])
    written.batch(FIRST, 10)
    written.aborted([(1, b'"nobody"', b"1", 11, 1)])
    written.batch(SECOND, 20)
    written.aborted([(0, b'"nobody"', b"1", 21, 1)])
    written.updates([(0, b'"grace"', b'"hopper"', 25, 1)])
    return written


def test_check_says_ok_and_what_there_is(people: Written, command: Command) -> None:
    """Aborted records are not seen, and what no progress covers is counted apart."""
    result = command("check", people.name)

    assert result.out.splitlines() == [
        f"{people.name}: 2 batches, 5 updates, frontier 20",
        "accumulated: 1 key, 1 value, 1 with their counts",
        "not closed yet: 1 update",
        "ok",
    ]
    assert result.status == 0


def published_twice(topic: Written) -> None:
    topic.batch(FIRST, 10)
    topic.publish(topic.progress(30, 0))
    topic.batch([], 40)


def a_second_value(topic: Written) -> None:
    topic.batch(FIRST, 10)
    topic.batch([(0, b'"frank"', b'"oz"', 12, 1)], 20)


def a_record_more(topic: Written) -> None:
    topic.updates(FIRST)
    topic.progress(30, 3)


def a_gap(topic: Written) -> None:
    topic.batch(FIRST, 10)
    topic.batches += 1
    topic.batch(SECOND, 20)


def made_anew(topic: Written) -> None:
    topic.publish(ProgressRecord("c", "p", topic.name, 0, 0, 30, 1, {0: 900, 1: 9}, "upserts"))


@pytest.mark.parametrize(
    ("write", "command_name", "status", "said"),
    [
        # A repeated progress record counts once, also when it ends later.
        (published_twice, "check", 0, "3 batches, 4 updates, frontier 40"),
        (a_record_more, "check", 1, 'batch 0 of "NAME" has 4 updates, its progress counts 3'),
        # Three updates and a transaction's commit record lie before it.
        (a_second_value, "check", 1, "NAME[0]@4: after time 12, in batch 1, this key holds 2"),
        (made_anew, "check", 1, "cannot read NAME[0] up to offset 900"),
        (a_gap, "snapshot", 1, "follows batch 0"),
        # These are neither right nor wrong.
        (
            lambda topic: topic.updates(FIRST),
            "check",
            2,
            'NAME: 4 updates\nnot verifiable: "NAME.progress" holds no progress\n',
        ),
        (lambda topic: topic.batch([], 10), "check", 2, 'nothing is published yet in "NAME"\n'),
    ],
)
def test_what_a_topic_has_is_judged(
    written: Written,
    command: Command,
    write: Callable[[Written], object],
    command_name: str,
    status: int,
    said: str,
) -> None:
    """By its progress and its promise; the place of a fault is topic, partition and offset."""
    write(written)
    result = command(command_name, written.name)

    assert said.replace("NAME", written.name) in result.out + result.err
    assert result.status == status


def test_commands_read_a_topic_whose_promise_edits_have_changed(
    written: Written, command: Command
) -> None:
    """Weaker and then stronger: every one of them stopped for ever at the first such batch."""
    written.batch(FIRST, 10)
    written.promise = "collection"
    written.batch([(0, b'"frank"', b'"oz"', 12, 1)], 20)
    written.promise = "changes"
    written.batch([(1, b'"grace"', b'"hopper"', 25, -1)], 30)
    written.promise = "upserts"
    written.batch([], 30)
    mended: list[Row] = [
        (0, b'"frank"', b'"oz"', 30, -1), (1, b'"grace"', b'"hopper"', 30, 1),
    ]  # fmt: skip
    written.batch(mended, 40)
    check, snapshot = command("check", written.name), command("snapshot", written.name)
    follow = command("follow", written.name, "--until", "40")
    compact = command("compact", written.name)

    assert "accumulated: 2 keys, 2 values, 2 with their counts" in check.out
    assert check.out.endswith("ok\n")
    assert len(snapshot.out.splitlines()) == 2
    assert [r.status for r in (check, snapshot, follow, compact)] == [0, 0, 0, 0], compact.err

    written.batch([(0, b'"frank"', b'"oz"', 45, 1)], 50)
    assert (
        "after time 45, in batch 5, this key holds 2 values" in command("check", written.name).out
    )


def test_check_starts_where_progress_starts(people: Written, command: Command) -> None:
    """With its oldest progress deleted, a topic is verified from a time that is told."""
    people.delete_before(people.name + ".progress", 0, 2)
    result = command("check", people.name)

    assert f"{people.name}: 1 batch, 1 update, frontier 20" in result.out
    assert "verified from time 10: earlier progress was deleted, so 4 updates before" in result.out
    assert result.out.endswith("ok\n")
    assert result.status == 0


def test_a_topic_without_its_beginning_is_refused(people: Written, command: Command) -> None:
    """Nothing can be accumulated from a topic whose first records are gone."""
    people.delete_before(people.name, 0, 3)
    gone = f"the beginning of {people.name}[0] was deleted"
    check, snapshot = command("check", people.name), command("snapshot", people.name)
    follow = command("follow", people.name, "--until", "20")

    assert (check.status, snapshot.status, follow.status) == (2, 1, 1)
    assert f"not verifiable: {gone}" in check.out
    assert gone in snapshot.err
    assert gone in follow.err
    assert command("follow", people.name, "--from", "now", "--until", "20").status == 0


def test_a_partition_that_is_added_later_is_read_from_its_beginning(
    people: Written, command: Command
) -> None:
    """Older progress does not name it, and newer does."""
    topics.add_partitions(people.admin, people.name, 3)
    wait_until(lambda: people.partitions() == 3, 30, "the added partition")
    people.connect()
    people.updates([(2, b'"ada"', b'"lovelace"', 26, 1)])
    people.progress(30, 2)
    check, snapshot = command("check", people.name), command("snapshot", people.name)

    assert (check.status, snapshot.status) == (0, 0)
    assert json.loads(snapshot.out.splitlines()[0]) == {
        "key": "ada",
        "value": "lovelace",
        "count": 1,
    }


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        pytest.param("4", [("frank", "mcsherry")], id="before it was replaced"),
        pytest.param("5", [("frank", "zappa")], id="at the time itself"),
        pytest.param("9", [("david", {"born": 1947}), ("frank", "zappa")], id="in order"),
        pytest.param(None, [("frank", "zappa")], id="the greatest closed time"),
    ],
)
def test_a_snapshot_is_the_sum_up_to_its_time(
    people: Written, command: Command, as_of: str | None, expected: list[tuple[str, object]]
) -> None:
    """Lines are ordered by key bytes; JSON data are printed as JSON."""
    result = command("snapshot", people.name, *(["--as-of", as_of] if as_of else []))
    lines = [json.loads(line) for line in result.out.splitlines()]

    assert lines == [{"key": key, "value": value, "count": 1} for key, value in expected]
    assert result.status == 0


@pytest.mark.parametrize(
    ("as_of", "said"),
    [
        pytest.param("20", "its frontier is 20\nHint: Wait until", id="at the frontier"),
        pytest.param("-1", "it begins at time 0", id="before the beginning"),
    ],
)
def test_a_snapshot_of_a_time_that_is_not_closed_is_refused(
    people: Written, command: Command, as_of: str, said: str
) -> None:
    """The error names the frontier and what to do."""
    result = command("snapshot", people.name, "--as-of", as_of)

    assert result.out == ""
    assert f"as of {as_of}: {said}" in result.err
    assert result.status == 1


def test_a_snapshot_prints_all_keys_in_one_way(written: Written, command: Command) -> None:
    """One key that is no JSON makes strings of all; values are on their own."""
    written.batch([(0, b"7", b"\xff", 1, 1), (1, b"N7", b"{}", 1, 1), (1, None, b"", 1, 1)], 2)
    result = command("snapshot", written.name)

    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"key": None, "value": {"base64": ""}, "count": 1},
        {"key": "7", "value": {"base64": "/w=="}, "count": 1},
        {"key": "N7", "value": {"base64": "e30="}, "count": 1},
    ]


def table_of(written: Written, output: str) -> bytes:
    """A snapshot as bytes, which have to be a program's own."""
    given = ["snapshot", written.name, "--output", output, "--bootstrap-servers", written.servers]
    return subprocess.run([*COMMAND, *given], check=True, capture_output=True).stdout


@pytest.mark.parametrize("output", ["csv", "parquet", "arrow"])
def test_a_snapshot_is_a_table_with_columns(written: Written, output: str) -> None:
    """A column for each field, in its type, and the count; a field of this name stays one."""
    written.batch(
        [
            (0, b'{"id":1}', b'{"count":2.5,"name":"tea","tags":["a"]}', 1, 3),
            (1, b'{"id":2}', b'{"count":null,"name":"milk"}', 1, 1),
        ],
        10,
    )
    printed = table_of(written, output)

    if output == "csv":
        assert printed.decode().splitlines() == [
            '"id","count","name","tags","count_"',
            '1,2.5,"tea","[""a""]",3',
            '2,,"milk",,1',
        ]
        return
    table = (
        parquet.read_table(pa.BufferReader(printed))
        if output == "parquet"
        else pa.ipc.open_stream(printed).read_all()
    )
    assert table.to_pylist() == [
        {"id": 1, "count": 2.5, "name": "tea", "tags": '["a"]', "count_": 3},
        {"id": 2, "count": None, "name": "milk", "tags": None, "count_": 1},
    ]


def test_a_snapshot_has_the_types_that_progress_tells(written: Written) -> None:
    """Decimals with all of their digits, dates and lists, in Parquet."""
    written.columns = {"price": "DECIMAL(38,2)", "day": "DATE", "l": "BIGINT[]", "s": "HUGEINT"}
    value = b'{"day":"2024-02-29","l":[1],"price":12345678901234567890.25,"s":80}'
    written.batch([(0, b"1", value, 1, 1)], 10)
    (row,) = parquet.read_table(pa.BufferReader(table_of(written, "parquet"))).to_pylist()

    assert row == {
        **{"key": 1, "day": datetime.date(2024, 2, 29), "l": [1], "s": Decimal(80), "count": 1},
        "price": Decimal("12345678901234567890.25"),
    }


def test_sql_has_the_types_that_progress_tells(written: Written, command: Command) -> None:
    """A sum of whole numbers is a number, and money is exact."""
    written.columns = {"price": "DECIMAL(10,2)", "n": "BIGINT"}
    written.batch([(0, b"%d" % n, b'{"n":40,"price":0.10}', 1, 1) for n in range(2)], 10)

    query = f'SELECT sum(n) AS n, sum(price) AS p FROM "{written.name}"'
    result = command("sql", query, written.name, "--output", "json")

    assert result.out.strip() == '{"n":80,"p":0.20}'


def test_client_settings_come_from_a_file(
    people: Written, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is key=value; a mistake names the file and line, or the setting, once."""
    monkeypatch.delenv("IKEBANA_BOOTSTRAP_SERVERS")
    config = tmp_path / "client.properties"
    config.write_text(f"# ours\n\nbootstrap.servers = {people.servers}\nclient.id=reader\n")
    assert command("check", people.name, "--config", str(config)).status == 0

    config.write_text("client.id\n")
    assert "line 1 is no key=value" in command("check", "t", "--config", str(config)).err

    config.write_text("no.such.setting=1\n")
    assert "no.such.setting" in command("check", "t", "--config", str(config)).err


def test_follow_prints_updates_and_frontiers(people: Written, command: Command) -> None:
    """A line for each update by time, one for each frontier, and a sum at the end."""
    result = command("follow", people.name, "--until", "20")

    assert result.out.splitlines() == [
        '1 +1 "frank" "mcsherry"',
        '5 +1 "frank" "zappa"',
        '5 -1 "frank" "mcsherry"',
        '7 +1 "david" {"born": 1947}',
        "frontier 10",
        '12 -1 "david" {"born": 1947}',
        "frontier 20",
    ]
    assert f"{people.name}: 2 batches, 5 updates, 1 data, sum 1, frontier 20" in result.err
    assert result.status == 0


def test_follow_shows_as_many_updates_as_asked(people: Written, command: Command) -> None:
    """What is left out of a batch is counted."""
    result = command("follow", people.name, "--until", "10", "--updates", "1")

    assert result.out.splitlines() == [
        '1 +1 "frank" "mcsherry"',
        "… and 3 more updates",
        "frontier 10",
    ]


def test_follow_goes_on_and_a_signal_ends_it(people: Written) -> None:
    """From now on, batches are shown as they close, and SIGTERM is a good end."""
    following = subprocess.Popen(
        [*COMMAND, "follow", people.name, "--bootstrap-servers", people.servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert following.stdout is not None
        shown = list(iter(following.stdout.readline, "frontier 20\n"))
        people.progress(30, 1)
        later = following.stdout.readline(), following.stdout.readline()
        following.send_signal(signal.SIGTERM)
        _, err = following.communicate(timeout=patient(60))
    finally:
        following.kill()

    assert len(shown) == 6
    assert later == ('25 +1 "grace" "hopper"\n', "frontier 30\n")
    assert "3 batches, 6 updates" in err
    assert following.returncode == 0


def test_follow_shows_a_view_on_a_terminal(people: Written) -> None:
    """A terminal shows the last updates, the size of the collection, frontier and lag."""
    ours, theirs = pty.openpty()
    following = subprocess.Popen(
        [*COMMAND, "follow", people.name, "--until", "20"],
        env={
            **os.environ,
            "IKEBANA_BOOTSTRAP_SERVERS": people.servers,
            "TERM": "xterm",
            "COLUMNS": "120",
        },
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    try:
        while found := os.read(ours, 4096):
            shown += found
    except OSError:
        pass  # how a terminal whose other side is closed ends on Linux
    os.close(ours)

    assert following.wait(60) == 0
    for part in (b'"zappa"', b"1 data, sum 1", b"frontier 20", b"not closed yet", b"updates/s"):
        assert part in shown


def test_the_consumer_of_the_docs_is_right(people: Written) -> None:
    """What docs/reading.md tells readers to write gives each closed batch, once."""
    people.publish(people.progress(30, 1))
    people.batch([], 40)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", READING.read_text(), re.DOTALL):
        exec(code, names)
    found = itertools.islice(names["collections"](people.servers, people.name), 4)
    frank, david = (b'"frank"', b'"zappa"'), (b'"david"', b'{"born": 1947}')
    grace = b'"grace"', b'"hopper"'

    assert list(found) == [
        (10, {frank: 1, david: 1}),
        (20, {frank: 1}),
        (30, {frank: 1, grace: 1}),
        (40, {frank: 1, grace: 1}),
    ]


def test_a_topic_that_is_no_output_is_refused(written: Written, command: Command) -> None:
    """At once, instead of waiting for progress that never comes; `check` cannot verify it."""
    name = f"{written.name}.progress"
    for reading in ("follow", "snapshot"):
        result = command(reading, name)
        assert f'"{name}" is no output of a pipeline' in result.err
        assert result.status == 1
    checked = command("check", name)
    assert '.progress.progress" does not exist: this is no output' in checked.out
    assert checked.status == 2


@pytest.mark.parametrize("name", ["no-such-topic", "no name of a topic!", ""])
def test_a_topic_that_does_not_exist_is_named(name: str, command: Command) -> None:
    """Reading does not make topics, and some names none can have."""
    for reading in ("follow", "check", "snapshot"):
        result = command(reading, name)

        assert f'cannot read topic "{name}": it does not exist' in result.err
        assert result.status == 1


def test_errors_that_stand_are_listed_with_their_records(
    servers: str, tmp_path: Path, topic_name: Callable[[str], str], command: Command
) -> None:
    """What was retracted is not there; a record is fetched, unless it is gone."""
    name = topic_name("pipeline")
    errors = Written(servers, f"{name}.errors", "collection")
    source = Written(servers, f"{name}.in")
    source.updates([(1, b'"frank"', b"{", 0, 1), (1, b'"oz"', b"[", 0, 1)])
    source.delete_before(source.name, 1, 1)
    bad, gone, solved = (
        error_record("no JSON", (source.name, 1, offset), b'"frank"', b"{") for offset in (1, 0, 2)
    )
    operator = error_record("operator o: 1/0", None, b'{"id":1}', None)
    at = 1_700_000_000_500
    rows = [(0, None, record, at, 1) for record in (bad, solved, gone)]
    errors.batch([*rows, (0, None, operator, at + 1, 2)], at + 2)
    errors.batch([(0, None, solved, at + 3, -1)], at + 4)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"pipeline: {name}\n"
        f"inputs: {{rows: {{topic: {source.name}}}}}\n"
        "operators: {current: {upsert: rows}}\n"
        f"outputs: {{out: {{from: current, topic: {name}.out}}}}\n"
        f"kafka: {{bootstrap.servers: '{servers}'}}\n"
    )

    result = command("errors", str(path), "--records", "--json")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert result.status == 0
    assert [(f["at"], f["count"], f["reason"], f["offset"], f["key"]) for f in found] == [
        ("2023-11-14T22:13:20.500Z", 1, "no JSON", 1, "frank"),
        ("2023-11-14T22:13:20.500Z", 1, "no JSON", 0, "frank"),
        ("2023-11-14T22:13:20.501Z", 2, "operator o: 1/0", None, {"id": 1}),
    ]
    records = [f["record"] for f in found]
    assert records == [{"key": "oz", "value": "["}, None, None]

    table = command("errors", str(path), "--records").out
    assert f"{source.name}[1]@1" in table
    assert "gone" in table
    assert f"{name}.errors: 4 errors, frontier {at + 4} (2023-11-14T22:13:20.504Z)" in table
