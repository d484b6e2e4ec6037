"""The compose file: what it says, and its services run, with the image's own health check."""

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from deploy import cluster, composed, image_tree
from deploy.charts import ROOT, Object
from deploy.container import Container, Image
from support.waiting import wait_until

OUTSIDE = "localhost:19092"
WAIT = """
import sys
from confluent_kafka.admin import AdminClient
AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0}).list_topics(timeout=90)
"""
CREATE = """
import sys
from support.pipeline_processes import create
create(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""
FEED = """
import json, sys
from support.pipeline_processes import produce
produce(sys.argv[1], "flights", [(k.encode(), v.encode()) for k, v in json.loads(sys.argv[2])])
"""


def test_compose_is_as_specified() -> None:
    """The specification's own reader takes it; what services wait for and mount is there."""
    read = composed.read_compose(composed.COMPOSE)
    assert read.returncode == 0, read.stderr
    project = json.loads(read.stdout)
    for service in project["services"].values():
        assert service.get("depends_on", {}).keys() <= project["services"].keys()
        for mount in service.get("volumes", ()):
            known = project["volumes"] if mount["type"] == "volume" else ()
            assert mount["source"] in known or Path(mount["source"]).is_file()
    build = project["services"]["ikebana"]["build"]
    assert (Path(build["context"]) / build["dockerfile"]).is_file()


def test_what_compose_does_not_know_is_refused(tmp_path: Path) -> None:
    """The check above is able to fail."""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(composed.COMPOSE.read_text().replace("read_only:", "readonly:"))
    read = composed.read_compose(wrong)
    assert read.returncode != 0
    assert "services.ikebana.readonly" in read.stderr


def health_check() -> tuple[list[str], float]:
    """The command of the image's health check, and how long it may take."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    ((options, command),) = re.findall(
        r"^HEALTHCHECK (.*)\\\n\s+CMD (\[.*\])$", text, re.MULTILINE
    )
    (timeout,) = re.findall(r"--timeout=(\d+)s", options)
    return json.loads(command), float(timeout)


def everyone(container: Container) -> list[int]:
    """The processes of a container."""
    own = os.readlink(f"/proc/{container.first()}/ns/pid")
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/pid"):
        try:
            if os.readlink(path) == own:
                found.append(int(path.parts[2]))
        except OSError:
            continue
    return found


@contextmanager
def started(
    name: str, found: dict[str, Object], images: dict[str, Image], folder: Path, net: int
) -> Iterator[Container]:
    """A service until the end of the block, and its volumes for longer; it ends by itself."""
    container = composed.made(name, found[name], folder / name, net)
    container.start(images)
    try:
        yield container
    except BaseException as error:
        error.add_note(container.log.read_text()[-3000:])
        raise
    finally:
        container.stop(120)
        code = container.reap()
    # A JVM that SIGTERM has ended says so.
    assert code == (0 if name == "ikebana" else 143), container.log.read_text()[-3000:]


@pytest.fixture
def images(tmp_path: Path) -> dict[str, Image]:
    """The images of both services, laid out."""
    if why := cluster.unable():
        pytest.skip(why)
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    for name in ("image", "kafka-image"):
        (tmp_path / name).mkdir(mode=0o755)
    found = composed.services()
    return {
        found["ikebana"]["image"]: image_tree.made(tmp_path / "image"),
        found["kafka"]["image"]: composed.kafka_image(tmp_path / "kafka-image"),
    }


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_services_work_are_healthy_and_go_on(images: dict[str, Image], tmp_path: Path) -> None:
    """The health check follows the driver; what a new Kafka and driver find, they go on from."""
    found = composed.services()
    command, within_s = health_check()

    def healthy() -> bool:
        return driver.inside(command, within_s).returncode == 0

    def collection() -> dict[str, str]:
        asked = driver.inside(["ikebana", "snapshot", "whereabouts"], 60)
        rows = [json.loads(line) for line in asked.stdout.splitlines()]
        assert {row["count"] for row in rows} <= {1}
        return {row["key"]: row["value"]["at"] for row in rows}

    def moved(*places: tuple[str, str]) -> None:
        sent = [(tail, json.dumps({"at": place})) for tail, place in places]
        composed.within(net, FEED, OUTSIDE, json.dumps(sent))

    with composed.network() as net:
        with started("kafka", found, images, tmp_path, net):
            # Before what it depends on is healthy, ikebana is not started.
            composed.within(net, WAIT, OUTSIDE)
            asked = shlex.split(found["topics"]["command"])
            told = dict(pairwise(asked))
            topic = (told["--topic"], told["--partitions"])
            composed.within(net, CREATE, OUTSIDE, *topic)
            moved(("N1", "JFK"), ("N2", "LGA"), ("N1", "MIA"))
            with started("ikebana", found, images, tmp_path, net) as driver:
                wait_until(healthy, 90, "the container is healthy")
                wait_until(lambda: len(collection()) == 2, 90, "both aircraft are out")
                assert collection() == {"N1": "MIA", "N2": "LGA"}
                assert driver.inside(["id", "-u"], 10).stdout == "185\n"
                wrong = driver.inside(["touch", "/opt/ikebana/main.py"], 10)
                assert "Read-only file system" in wrong.stderr
                stopped = everyone(driver)
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                frozen = driver.inside(command, within_s)
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
                assert (frozen.returncode, frozen.stderr) == (1, "127.0.0.1:9404: timed out\n")
                wait_until(healthy, 60, "it is healthy again")
        with started("kafka", found, images, tmp_path, net):
            composed.within(net, WAIT, OUTSIDE)
            with started("ikebana", found, images, tmp_path, net) as driver:
                moved(("N2", "BOS"), ("N3", "ORD"))
                wait_until(lambda: len(collection()) == 3, 120, "the third aircraft is out")
                assert collection() == {"N1": "MIA", "N2": "BOS", "N3": "ORD"}
                checked = driver.inside(["ikebana", "check", "whereabouts"], 60)
                assert checked.stdout.endswith("ok\n"), checked.stderr
