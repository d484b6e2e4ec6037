"""MongoDB's documents in Debezium's events: Extended JSON, and the key in a text."""

import json
from itertools import product
from typing import Any

import pytest

import ikebana as ik
from ikebana.codecs.encodings import of_extended_json

UUID = "b84dbfe2-fe4c-4953-a225-990ea3700f29"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"$oid": "67ab25755c0d5ac87eb8c632"}, "67ab25755c0d5ac87eb8c632"),
        ({"$numberLong": "-9223372036854775808"}, -(2**63)),
        ({"$numberInt": "7"}, 7),
        ({"$numberDouble": "-1.5E+10"}, -15_000_000_000),
        ({"$numberDouble": "-Infinity"}, "-Infinity"),
        ({"$numberDecimal": "3.140"}, 3.14),
        ({"$numberDecimal": "NaN"}, "NaN"),
        ({"$date": 1739455297970}, "2025-02-13T14:01:37.97Z"),
        ({"$date": {"$numberLong": "-1"}}, "1969-12-31T23:59:59.999Z"),
        ({"$date": "2012-12-24T12:15:30.501Z"}, "2012-12-24T12:15:30.501Z"),
        ({"$binary": "AP8Q", "$type": "0"}, "AP8Q"),
        ({"$binary": {"base64": "AP8Q", "subType": "00"}}, "AP8Q"),
        ({"$binary": "uE2/4v5MSVOiJZkOo3APKQ==", "$type": "4"}, UUID),
        ({"$binary": {"base64": "uE2/4v5MSVOiJZkOo3APKQ==", "subType": "04"}}, UUID),
        ({"$uuid": UUID}, UUID),
        ({"$symbol": "s"}, "s"),
        ({"$undefined": True}, None),
        ([{"a": [{"$numberLong": "1"}]}], [{"a": [1]}]),
    ],
)
def test_an_object_of_extended_json_is_its_value(written: Any, value: Any) -> None:
    """In the canonical form, the relaxed one and the older one."""
    assert of_extended_json(written) == value


@pytest.mark.parametrize(
    "written",
    [
        {"$minKey": 1},
        {"$timestamp": {"t": 1736997330, "i": 2}},
        {"$numberLong": "five"},
        {"$numberLong": [5]},
        {"$date": "yesterday"},
        {"$oid": 5},
        {"$binary": "AP8Q", "$type": "4"},
        {"$binary": 5},
        {"$oid": "5f", "more": 1},
        {"$numberDecimal": "1e999999999"},
    ],
)
def test_other_objects_stay(written: Any) -> None:
    """Those without a form, and those that do not fit theirs."""
    assert of_extended_json(written) == written


def test_nothing_that_looks_like_one_is_an_error() -> None:
    """What a writer may have under such a name, at worst it stays."""
    inner: list[Any] = [None, True, -1, 1.5, "", "x", "1e999999999", "!!", [], {}]
    inner.append({"$numberLong": "x"})
    kinds: list[Any] = [None, 4, "04", "zz", []]
    inner += [{"base64": "aGk=", "subType": kind} for kind in kinds]
    names = ("$oid", "$numberLong", "$numberDecimal", "$date", "$binary", "$undefined", "$other")
    for name, value, kind in product(names, inner, kinds):
        document = {name: value, "$type": kind}
        json.dumps(of_extended_json(document))


def test_documents_are_rows_with_types() -> None:
    """A delete has the key alone, in the Kafka key; so has the tombstone after it."""
    names = {"_id": "VARCHAR", "n": "BIGINT", "at": "TIMESTAMPTZ", "price": "DECIMAL(9,2)"}
    columns = [ik.Column(name, kind) for name, kind in {**names, "f": "DOUBLE"}.items()]
    pipeline = ik.Pipeline("p")
    rows = pipeline.topic("t", format="debezium-json", key=["_id"], columns=columns)
    rows.upsert().to("out")
    identifier = {"$oid": "5f"}
    key = {"id": json.dumps(identifier)}
    document = {
        **{"_id": identifier, "n": {"$numberLong": "5"}, "at": {"$date": 0}},
        **{"price": {"$numberDecimal": "3.14"}, "f": {"$numberDouble": "NaN"}},
    }
    events: list[Any] = [
        (key, {"before": None, "after": json.dumps(document), "op": "c"}, 0),
        (key, {"before": None, "after": None, "op": "d"}, 1),
        (key, None, 1),
    ]

    made = pipeline.evaluate(t=events)

    row = {"_id": "5f", "n": 5, "at": "1970-01-01T00:00:00Z", "price": 3.14, "f": "NaN"}
    assert made["errors"] == []
    assert [tuple(update) for update in made["out"]] == [
        (({"_id": "5f"}, row), 0, 1),
        (({"_id": "5f"}, row), 1, -1),
    ]
