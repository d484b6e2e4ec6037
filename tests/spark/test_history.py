"""A history of files before a topic, through Kafka and Spark, over deaths and restarts."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from support.output_judge import committed
from support.pipeline_processes import WrittenOver

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_files_are_read_once_before_the_topic(written_over: WrittenOver, tmp_path: Path) -> None:
    """In portions, of which one dies after its commit in one shard; the files may go then."""
    pipeline = written_over("changes", limit=60)
    source = f"{pipeline.name}.changes"
    folder = tmp_path / "history"
    folder.mkdir()
    expected: dict[int, int] = {}
    for at in range(2):
        rows = [{"id": 100 * at + each, "v": each} for each in range(100)]
        expected |= {row["id"]: row["v"] for row in rows}
        parquet.write_table(
            pa.Table.from_pylist(rows), folder / f"{at}.parquet", row_group_size=30
        )
    changes = []
    for key in range(0, 200, 7):
        after = None if key % 2 else {"id": key, "v": -key}
        event = {"op": "u" if after else "d", "before": {"id": key, "v": 0}, "after": after}
        changes.append((b'{"id":%d}' % key, json.dumps(event).encode()))
        expected.pop(key)
        if after is not None:
            expected[key] = -key
    pipeline.send_to("changes", changes)
    sections = {
        "inputs": {
            "changes": {
                "topic": source,
                "format": "debezium-json",
                "key": "id",
                "columns": {"id": "BIGINT", "v": "BIGINT"},
                "history": {"files": str(folder)},
            }
        },
        "operators": {"current": {"upsert": "changes"}},
        "outputs": {"out": {"from": "current", "topic": f"{pipeline.name}.out"}},
    }
    pipeline = pipeline.having(sections)

    pipeline.dies("after_commit:1:1")
    logged = pipeline.logged_positions(-1)
    assert logged["history changes[0]"] < 100
    assert not any(end for place, end in logged.items() if place.startswith(source))
    pipeline.drained()
    for file in folder.iterdir():
        file.unlink()
    pipeline.send_to("changes", [(b'{"id":1}', b'{"op":"d","before":{"id":1}}')])
    expected.pop(1)
    pipeline.drained()

    found: dict[tuple[int, int], int] = {}
    for message in committed(pipeline.servers, f"{pipeline.name}.out"):
        row = json.loads(message.value())
        diff = int(dict(message.headers())["diff"])
        place = row["id"], row["v"]
        found[place] = found.get(place, 0) + diff
        assert found[place] in (0, 1)
    assert {key: v for (key, v), count in found.items() if count} == expected
