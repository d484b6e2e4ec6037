"""What keys have much of a batch is told by their hashes, and costs next to nothing."""

import hashlib
import json
import time
from random import Random

import pytest

from ikebana.processor.base import log_lines
from ikebana.processor.base.rows import Facts, IgnoredMessages, Updates, Upserts
from ikebana.processor.base.sharding import LEAST, Hot, added_up, hash_of, hot_keys
from ikebana.processor.watching import metrics
from ikebana.processor.watching.metrics import OTHER_KEYS, HotSeries, MetricSample
from ikebana.processor.watching.reports import HotWarnings
from support.clocks import Clock

HOT = b'{"id":7}'


def upserts(keys: list[bytes], name: str = "orders") -> Upserts:
    return Upserts(name, 0, 0, 5, keys, [b"{}"] * len(keys), list(range(len(keys))))


def mixed(count: int, share: float) -> list[bytes]:
    """So many keys, of which a share is the hot one and the others are all different."""
    choice = Random(count)
    return [HOT if choice.random() < share else b"%d" % at for at in range(count)]


def test_a_key_with_half_of_the_records_is_found() -> None:
    """Its share is estimated from a sample, in any number of chunks."""
    keys = mixed(40_000, 0.5)
    chunks = [upserts(keys[at : at + 5_000]) for at in range(0, 40_000, 5_000)]

    (found,) = hot_keys([*chunks, IgnoredMessages({"late": 3})])

    assert found.hash == hash_of(HOT)
    assert found.count == 40_000
    assert abs(found.most - 20_000) < 2_500


@pytest.mark.parametrize("period", [2, 3, 4, 7, 10, 64, 100, 256, 1_000])
def test_keys_that_come_in_turns_are_seen_alike(period: int) -> None:
    """A regular choice of records would see one of them only, or too few."""
    (found,) = hot_keys([upserts([b"%d" % (at % period) for at in range(20_000)])])

    assert found.most / found.count <= 1.5 / period + 0.01


def test_few_records_are_not_looked_at() -> None:
    """They are counted for the shares of other shards, or not at all."""
    few = [HOT] * (LEAST - 1)

    assert hot_keys([upserts(few)]) == [Hot("records", "orders", LEAST - 1)]
    assert hot_keys([upserts(few[:100])]) == []


def test_what_comes_by_an_exchange_is_told_by_the_operator_that_it_goes_to() -> None:
    """Updates to outputs have no key that matters."""
    keys: list[bytes | None] = [HOT, None] * LEAST
    columns = [b""] * len(keys), [0] * len(keys), [1] * len(keys)
    exchanged = Updates([], keys, *columns, inlets=["totals"])
    written = Updates(["out"], keys, *columns)
    facts = Facts("facts", keys, *columns)

    assert {hot.of for hot in hot_keys([exchanged, written, facts])} == {"totals", "facts"}


def test_the_key_is_hashed_as_tools_do_it() -> None:
    """`printf '%s' KEY | sha256sum` gives what the metric has, and the key itself is nowhere."""
    (found,) = hot_keys([upserts([HOT] * LEAST)])

    assert found.hash == hashlib.sha256(HOT).hexdigest()[:12]
    assert b"id" not in repr(found).encode()


def test_looking_at_keys_takes_less_than_a_hundredth_of_what_a_batch_takes() -> None:
    """A record takes 5 us and more; the sample is what it costs, however large a batch is."""
    chunks = [upserts(mixed(5_000, 0.1)) for _ in range(12)]
    hot_keys(chunks)
    spent = []
    for _ in range(5):
        begun = time.process_time()
        hot_keys(chunks)
        spent.append(time.process_time() - begun)

    assert min(spent) < 0.01 * 60_000 * 5e-6


def test_shares_are_of_all_shards() -> None:
    """A key lies in one shard; matches are of one key, so they are not added up."""
    found = added_up(
        [
            Hot("records", "orders", 20_000, 18_000, "a"),
            Hot("records", "orders", 10_000, 100, "b"),
            Hot("matches", "priced", 5_000, 5_000, "a"),
            Hot("matches", "priced", 7_000, 7_000, "c"),
        ]
    )

    assert found == [
        Hot("records", "orders", 30_000, 18_000, "a"),
        Hot("matches", "priced", 7_000, 7_000, "c"),
    ]


def share(key: str, value: float) -> MetricSample:
    return MetricSample(metrics.HOT_KEY_SHARE, ("orders", key), value)


def test_the_hottest_key_has_its_share_and_the_one_before_has_none() -> None:
    """Also when nothing is known of a batch."""
    series = HotSeries()

    def told(*hot: Hot) -> set[MetricSample]:
        return set(series.samples(hot))

    assert told(Hot("records", "orders", 20_000, 10_000, "a")) == {share("a", 0.5)}
    assert told(Hot("records", "orders", 20_000, 5_000, "b")) == {share("a", 0), share("b", 0.25)}
    assert told(Hot("records", "orders", 500)) == {share("b", 0)}
    assert told() == set()
    assert told(Hot("matches", "priced", 9, 9, "a")) == {
        MetricSample(metrics.JOIN_KEY_MATCHES, ("priced", "a"), 9)
    }


def test_keys_that_change_in_each_batch_make_few_series() -> None:
    """From the eleventh on they are told as one."""
    series = HotSeries()
    hashes = {
        sample.labels[1]
        for at in range(100)
        for sample in series.samples([Hot("records", "orders", 20_000, 9_000, f"{at}")])
    }

    assert hashes == {*map(str, range(10)), OTHER_KEYS}


def test_a_warning_names_the_hash_once_in_a_period() -> None:
    """Of each input, operator and join by itself, and again when ten minutes have passed."""
    clock = Clock()
    warnings = HotWarnings(clock)
    hot = [
        Hot("records", "orders", 40_000, 20_000, "a3c9"),
        Hot("matches", "priced", 100_000, 100_000, "02d2"),
    ]

    first = [told.words for told in warnings.of(12, hot)]
    second = list(warnings.of(13, hot))
    clock.now += 600
    third = list(warnings.of(14, hot[:1]))

    assert first == [
        "the key with the hash a3c9 has 50% of the 40,000 records of orders in batch 12: its "
        "shard does more than the others",
        "the key with the hash 02d2 has met 100,000 rows of join priced in batch 12: its results "
        "are as many, and all come from one shard",
    ]
    assert second == []
    assert third[0].fields == {
        "batch": 14,
        "of": "orders",
        "hash": "a3c9",
        "share": 0.5,
        "records": 40_000,
    }


@pytest.mark.parametrize(
    "hot",
    [
        Hot("records", "orders", 40_000, 8_000, "a"),
        Hot("records", "orders", 9_000),
        Hot("matches", "priced", 10_000, 10_000, "a"),
    ],
    ids=["a fifth", "not looked at", "10,000 matches"],
)
def test_what_is_usual_is_no_warning(hot: Hot) -> None:
    """Up to a fifth of the records, batches of few records, and 10,000 matches are usual."""
    assert not list(HotWarnings().of(1, [hot]))


def test_a_warning_in_json_has_its_parts(caplog: pytest.LogCaptureFixture) -> None:
    """At the level WARNING, so that log collectors find it."""
    log_lines.warning("words", hash="a3c9")

    told = json.loads(log_lines.JsonLines().format(caplog.records[-1]))

    assert (told["level"], told["message"], told["hash"]) == ("WARNING", "words", "a3c9")
