"""Each right that a pipeline needs is told by name when it is missing, before a query starts."""

import os
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from ikebana.errors import AccessError
from ikebana.processor.authoring import pipeline
from ikebana.processor.base.notices import Check
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.pipeline_argument import PipelineArgument
from ikebana.processor.cli.preflight import checks
from ikebana.processor.watching.reports import Watchers
from support.guarded_pipelines import Guarded
from support.pipeline_processes import Pipeline
from support.secured_broker import Rule, Secured

pytestmark = pytest.mark.kafka

TOPIC = ResourceType.TOPIC
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DESCRIBE, DELETE, ALTER = AclOperation.DESCRIBE, AclOperation.DELETE, AclOperation.ALTER
CONFIGS = AclOperation.DESCRIBE_CONFIGS
NAMES = {
    READ: "Read",
    WRITE: "Write",
    CREATE: "Create",
    DESCRIBE: "Describe",
    DELETE: "Delete",
    ALTER: "Alter",
    CONFIGS: "DescribeConfigs",
}
OPTIONS = {
    TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


def own_topics(name: str) -> dict[str, int]:
    """The topics of a pipeline of two shards, with their partitions."""
    outputs = [f"{name}.out", f"{name}.errors"]
    found = {topic: 1 for output in outputs for topic in (output, output + ".progress")}
    return {**found, f"{name}.commits": 3, f"{name}.exchange": 2}


GROUP = Rule(ResourceType.GROUP, "ikebana", DESCRIBE)
IDS = Rule(ResourceType.TRANSACTIONAL_ID, "ikebana-", WRITE, ResourcePatternType.PREFIXED)


def consumers(name: str) -> list[Rule]:
    """What `source.kafka` needs."""
    topics = (f"{name}.in", f"{name}.exchange", f"{name}.commits")
    return [*(Rule(TOPIC, topic, READ) for topic in topics), GROUP]


def producers(name: str) -> list[Rule]:
    """What `sink.kafka` needs."""
    return [*(Rule(TOPIC, topic, WRITE) for topic in own_topics(name)), IDS]


def drivers(name: str) -> list[Rule]:
    """What `kafka` needs, once the topics are there."""
    rules = [Rule(TOPIC, f"{name}.commits", READ), Rule(TOPIC, f"{name}.exchange", DELETE), GROUP]
    for output in (f"{name}.out", f"{name}.errors"):
        rules += [Rule(TOPIC, output, right) for right in (DESCRIBE, CONFIGS)]
        rules.append(Rule(TOPIC, f"{output}.progress", READ))
    return rules


def all_rules(name: str) -> list[Rule]:
    """What one client needs that is all three, beside seeing topics."""
    every = dict.fromkeys([*consumers(name), *producers(name), *drivers(name)])
    return [rule for rule in every if rule.kind != TOPIC or rule.operation != DESCRIBE]


def makers(name: str) -> list[Rule]:
    """What is needed to make the topics."""
    return [Rule(TOPIC, topic, CREATE) for topic in own_topics(name)]


def guarded(secured: Secured, folder: Path, name: str, user: str, **more: str) -> Guarded:
    """A pipeline whose clients are this user's, or by section those of others."""
    clients = {section: secured.user(of) for section, of in {"kafka": user, **more}.items()}
    return Guarded(folder, "", name, f"{name}.in", clients=clients)


def failed(pipe: Pipeline) -> list[Check]:
    return [check for check in checks(PipelineArgument(pipe.file())) if check.status == "failed"]


def refused(pipe: Pipeline) -> AccessError:
    """What a run is refused with, by which its query has not waited for Spark."""
    from ikebana.processor.spark import query
    from ikebana.processor.spark.session import Spark

    plan, settings = pipeline.read(pipe.file(), environ=os.environ)
    with Spark(settings, plan.name) as spark:
        with pytest.raises(AccessError) as raised:
            query.start(spark, plan, settings, Watchers([]), once=True)
        assert not spark.alive
    return raised.value


# Rules of pipeline `shop`, whose topics are there, and of `new`, of which only the input is.
OF_SHOP, OF_NEW = all_rules("shop"), makers("new")
SEEING = Rule(TOPIC, "*", DESCRIBE)


def named(rule: Rule) -> str:
    return f"{NAMES[rule.operation]} {rule.name}"


USERS = {f"lacks-{at}": rule for at, rule in enumerate([*OF_SHOP, *OF_NEW])}
# One of each kind of resource, of those that are there and those that are to be made.
_SHOWN = {(rule.kind, rule in OF_NEW): user for user, rule in USERS.items()}.values()
LACKING = [
    pytest.param(user, rule, id=named(rule), marks=() if user in _SHOWN else pytest.mark.full)
    for user, rule in USERS.items()
]


@pytest.fixture(scope="module")
def shop(secured: Secured) -> Secured:
    """The topics of `shop`, the inputs of all, and users of whom each lacks one right."""
    secured.create({"shop.in": 1, "new.in": 1, "late.in": 1, "split.in": 1, **own_topics("shop")})
    every = [SEEING, *OF_SHOP, *all_rules("new"), *OF_NEW]
    lacking = {name: [r for r in every if r != rule] for name, rule in USERS.items()}
    late = [r for r in all_rules("late") if r != Rule(TOPIC, "late.out", WRITE)]
    secured.admit(
        {
            **lacking,
            "whole": [SEEING, *OF_SHOP],
            "short-sighted": [SEEING, Rule(TOPIC, "shop.in", READ)],
            "late": [SEEING, *late, *makers("late")],
            "reader": consumers("split"),
            "writer": producers("split"),
            "driver": [*drivers("split"), *makers("split")],
        }
    )
    return secured


@pytest.mark.parametrize(("user", "missing"), LACKING)
def test_a_missing_right_is_told_by_preflight_and_refuses_a_run_in_the_same_words(
    shop: Secured, tmp_path: Path, user: str, missing: Rule
) -> None:
    """With the command that grants it; no topic is made by either."""
    pipe = guarded(shop, tmp_path, "new" if missing in OF_NEW else "shop", user)
    before = shop.topics()

    found = failed(pipe)
    error = refused(pipe)

    (check,) = found
    ends = {"ikebana-": 'transactional ids "ikebana-…"'}.get(missing.name, f'"{missing.name}"')
    assert check.check.endswith(ends)
    prefixed = " --resource-pattern-type prefixed" if missing == IDS else ""
    command = (
        f"--allow-principal User:{user} --operation {NAMES[missing.operation]} "
        f"{OPTIONS[missing.kind]} {missing.name}{prefixed}"
    )
    assert command in check.remedy
    assert f"{check.check} {check.fact}" in error.message
    assert error.hint == check.remedy
    assert shop.topics() == before


def test_preflight_ends_with_a_status_that_says_so(shop: Secured, tmp_path: Path) -> None:
    """Below the check stands what to do."""
    user = next(name for name, rule in USERS.items() if rule == GROUP)

    shown = CliRunner().invoke(
        cli, ["preflight", str(guarded(shop, tmp_path, "shop", user).file())]
    )

    assert shown.exit_code == 1
    assert 'failed  group "ikebana": may not be seen\n        Grant Describe: ' in shown.output


def test_new_shards_need_the_right_to_add_partitions(shop: Secured, tmp_path: Path) -> None:
    """Of the topics that have a partition a shard."""
    pipe = guarded(shop, tmp_path, "shop", "whole")
    assert failed(pipe) == []

    found = failed(pipe.but(shards=3))

    assert {check.check: check.fact for check in found} == {
        'topic "shop.commits"': "may not get the partitions of new shards",
        'topic "shop.exchange"': "may not get the partitions of new shards",
    }
    assert "--operation Alter --topic shop.commits" in found[0].remedy


def test_batches_longer_than_transactions_are_told_to_who_may_not_ask_for_settings(
    shop: Secured, tmp_path: Path
) -> None:
    """The brokers refuse a transaction that may last so long."""
    pipe = guarded(shop, tmp_path, "shop", "whole").but(max_batch="16m")

    (check,) = failed(pipe)

    assert check.check == "run.max_batch"
    assert "960 s" in check.fact


def test_rights_to_topics_that_a_start_makes_are_asked_for_once_they_are_there(
    shop: Secured, tmp_path: Path
) -> None:
    """Brokers tell nothing of a topic that is not there; afterwards preflight tells, too."""
    pipe = guarded(shop, tmp_path, "late", "late")
    before = failed(pipe)

    error = refused(pipe)

    (check,) = failed(pipe)
    assert before == []
    assert (check.check, check.fact) == ('topic "late.out"', "may not be written")
    assert f"{check.check} {check.fact}" in error.message


def test_what_another_client_lacks_is_told_of_it(shop: Secured, tmp_path: Path) -> None:
    """Here the one that reads; what the others do is not asked of it."""
    pipe = guarded(shop, tmp_path, "shop", "whole", source="short-sighted")

    found = failed(pipe)

    assert {check.check: check.fact for check in found} == {
        'topic "shop.commits"': "may not be read",
        'topic "shop.exchange"': "may not be read",
        'group "ikebana" by source.kafka': "may not be seen",
    }
    assert all("User:short-sighted" in check.remedy for check in found)


def test_who_has_no_rights_at_all_is_told_each(shop: Secured, tmp_path: Path) -> None:
    """A topic that is not to be seen may be there or not."""
    pipe = guarded(shop, tmp_path, "shop", "everybody")

    found = failed(pipe)
    error = refused(pipe)

    topics = {'input topic "shop.in"', *(f'topic "{topic}"' for topic in own_topics("shop"))}
    others = {'group "ikebana"', 'transactional ids "ikebana-…"'}
    assert {check.check for check in found} == topics | others
    assert all(check.remedy.startswith("Grant ") for check in found)
    assert all(f"{check} may not be seen" in error.message for check in topics)


@pytest.mark.full
@pytest.mark.spark
def test_a_run_with_exactly_the_rights_that_are_needed_ends_well(
    shop: Secured, tmp_path: Path
) -> None:
    """Three users over SASL_SSL and SCRAM: one reads, one writes, one looks and makes topics.

    Neither of them may do anything with the cluster, IdempotentWrite and Describe included.
    """
    shop.produce("split.in", [(b"a", b'"x"'), (b"b", b'"x"'), (b"c", b'"y"')])
    pipe = guarded(shop, tmp_path, "split", "driver", source="reader", sink="writer")
    before = list(checks(PipelineArgument(pipe.file())))

    pipe.drained(timeout_s=240)

    assert [check for check in before if check.status != "ok"] == []
    x, y, one, two = b'"x"', b'"y"', b'{"n":1}', b'{"n":2}'
    # The count of the first "x" comes, and goes again with the second one.
    assert Counter(shop.committed("split.out", 4)) == {(x, one): 2, (x, two): 1, (y, one): 1}
    again = list(checks(PipelineArgument(pipe.file())))
    assert [check for check in again if check.status != "ok"] == []
