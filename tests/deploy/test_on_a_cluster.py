"""The demo pipeline on Kubernetes: driver and executors as pods, some of which are lost.

Spark asks the real API server for executors, with the rights that the chart gives; the
node runs them as processes.  What counts is what comes out: every update once.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from deploy import cluster as clusters
from deploy import image_tree, object_store, tools
from deploy.charts import CHART, tool
from deploy.cluster import Cluster
from deploy.release import (
    EXECUTORS,
    IMAGE,
    PIPELINE,
    SECRET,
    SPACE,
    WITH_JARS,
    Release,
    kill,
    volume,
)
from ikebana.processor.kafka.broker import Broker, free_port
from support.output_judge import judge
from support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster with a node, which has the image, and a volume for the checkpoint."""
    if why := clusters.unable():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)
    image = image_tree.made(folder)
    classes = {**image.environment, "SPARK_DIST_CLASSPATH": "/opt/object-store/*"}
    mounts = {**image.mounts, "/opt/object-store": str(object_store.jars())}
    with_jars = image._replace(environment=classes, mounts=mounts)
    cluster.add_node({IMAGE: image, WITH_JARS: with_jars})
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": SPACE, "labels": restricted},
        },
        volume("shared", tmp_path_factory.mktemp("shared"), "ReadWriteMany"),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "kafka-user", "namespace": SPACE},
            "stringData": {"word": SECRET},
        },
    )
    return cluster


@pytest.fixture(scope="module")
def release(node: Cluster, broker: Broker) -> Iterator[Release]:
    """The chart, installed, ready, and about to read."""
    made = Release(node, broker)
    made.feed()
    yield made
    made.helm("uninstall", "demo", "--ignore-not-found", "--wait", "--timeout=180s")


def test_the_pipeline_survives_what_happens_to_pods(release: Release, tmp_path: Path) -> None:
    """An executor is killed, the driver's pod deleted, its container killed, the release upgraded.

    In the end each update is there once, at every time, and `ikebana check` agrees.
    """
    started = time.monotonic()

    def step(what: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  batch {release.committed():4d}  {what}")

    release.helm("install", "demo", CHART, *release.values(), "--wait", "--timeout=300s")
    step("installed and ready")
    wait_until(lambda: len(release.pods(EXECUTORS)) == 2, 120, "two executors run")
    release.wait_for_batches(2)
    step("two executors work")
    told = release.helm("test", "demo", "--logs")
    assert "ikebana_" in told
    step("helm test passed")

    release.feed()
    victim = release.pods(EXECUTORS)[0]["metadata"]["name"]
    kill("/bin/java", victim)
    step(f"killed executor {victim}")
    release.wait_for_batches(3)
    wait_until(
        lambda: (
            len(release.pods(EXECUTORS)) == 2
            and victim not in [pod["metadata"]["name"] for pod in release.pods(EXECUTORS)]
        ),
        120,
        "another executor takes its place",
    )
    step("another executor has taken its place")

    release.feed()
    release.wait_for_batches(1)
    before = release.pods("app.kubernetes.io/component=driver")[0]["metadata"]["uid"]
    release.cluster.kubectl("delete", "pod", "-n", SPACE, "demo-0", "--timeout=150s")
    step("deleted the driver's pod")
    wait_until(
        lambda: (
            [
                pod["metadata"]["uid"]
                for pod in release.pods("app.kubernetes.io/component=driver")
                if pod["metadata"]["uid"] != before
            ]
            != []
        ),
        120,
        "the StatefulSet made the driver again",
    )
    release.wait_for_batches(2)
    step("a new driver's pod goes on")

    release.feed()
    release.wait_for_batches(1)
    kill("/opt/ikebana/bin/python", "ikebana run")
    step("killed the driver's process")
    release.wait_for_batches(2)
    step("its container was started again")
    # Ended ones count as well: they would stay for as long as the driver's pod does.
    left = release.cluster.get("pods", "-n", SPACE, "-l", EXECUTORS)["items"]
    assert [pod["status"]["phase"] for pod in left] == ["Running", "Running"]

    release.feed()
    source = {"max_records_per_batch": 3000}
    other = {"image.tag": WITH_JARS.split(":")[1], "preflight.enabled": True}
    more = release.values(**{"settings.source": source, **other})
    release.helm("upgrade", "demo", CHART, *more, "--wait", "--timeout=300s")
    release.wait_for_batches(1)
    told = release.cluster.kubectl("logs", "-n", SPACE, "demo-0", "-c", "preflight")
    assert "checkpoint" in told
    (pod,) = release.pods("app.kubernetes.io/component=driver")
    assert pod["spec"]["containers"][0]["image"] == WITH_JARS
    step("upgraded to another image and other settings, after a preflight")
    changed = tmp_path / "changed.yaml"
    changed.write_text(PIPELINE.read_text().replace("time: ingest", "time: offset"))
    release.helm(
        "upgrade", "demo", CHART, *release.values(), f"--set-file=pipeline.file={changed}"
    )
    refused = "the checkpoint was made by another plan: time was"
    wait_until(lambda: refused in release.logs(), 120, "the other plan is refused")
    stood = release.committed()
    step("another plan is refused")
    release.feed()
    release.helm("rollback", "demo", "1", "--wait", "--timeout=300s")
    release.wait_for_batches(1)
    step(f"rolled back, and on from batch {stood}")

    release.wait_for_batches(2)
    wait_until(release.drained, 300, "everything is read")
    step("everything is read")
    assert release.said(SECRET) == []
    assert release.said("is forbidden") == []
    assert judge(release.servers, "whereabouts", release.truth()) == {}
    command = "from ikebana.processor.cli.main import main; main()"
    checked = subprocess.run(
        [
            *(sys.executable, "-c", command, "check", "whereabouts"),
            *("--bootstrap-servers", release.servers),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.endswith("ok\n")
    step(checked.stdout.replace("\n", "; "))


def test_one_pod_does_it_all(release: Release, tmp_path: Path) -> None:
    """By default there are no executors, no token, and a volume that only the driver mounts."""
    release.cluster.apply(volume("alone", tmp_path, "ReadWriteOnce"))
    text = PIPELINE.read_text().replace("pipeline: whereabouts", "pipeline: alone")
    text = text.replace("topic: whereabouts", "topic: alone")
    (tmp_path / "alone.yaml").write_text(text)
    options = {
        "fullnameOverride": "alone",
        "executors.count": 0,
        "checkpoint.volume.accessModes": ["ReadWriteOnce"],
        "http.port": free_port(),
        "console.port": free_port(),
    }
    values = (*release.values(**options), f"--set-file=pipeline.file={tmp_path}/alone.yaml")
    release.helm("install", "alone", CHART, *values, "--wait", "--timeout=300s")
    wait_until(lambda: release.published("alone"), 240, "all flights are out")
    told = release.cluster.kubectl("logs", "-n", SPACE, "alone-0")
    assert all(f"{path} yes" in told for path in ("owners", "compiled code", "forks")), told
    (pod,) = release.pods("app.kubernetes.io/instance=alone")
    assert not [each for each in pod["spec"]["volumes"] if "access" in each["name"]]
    release.helm("uninstall", "alone", "--wait", "--timeout=180s")
    node = release.cluster.folder / "nodelet.log"
    ended = f"('{SPACE}', 'alone-0') stopped with [0]"
    # Helm has waited for the StatefulSet, not for its pod.
    wait_until(lambda: ended in node.read_text(), 150, "the driver ends by itself, with 0")


def test_a_checkpoint_in_a_bucket(release: Release, tmp_path: Path) -> None:
    """Driver and executor write the checkpoint to an object store, and a new driver goes on."""
    tool(tools.versitygw)
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": object_store.USER}
    meta = {"name": "bucket", "namespace": SPACE}
    release.cluster.apply({**secret, "metadata": meta})
    text = PIPELINE.read_text().replace("pipeline: whereabouts", "pipeline: bucket")
    (tmp_path / "bucket.yaml").write_text(text.replace("topic: whereabouts", "topic: bucket"))
    with object_store.serving(tmp_path) as store:
        url = store.url
        options = {
            "fullnameOverride": "bucket",
            "image.tag": WITH_JARS.split(":")[1],
            "checkpoint.uri": f"s3a://{object_store.BUCKET}/bucket",
            "executors.count": 1,
            "extraEnv": [
                {"name": "AWS_ENDPOINT_URL", "value": url},
                {"name": "AWS_REGION", "value": object_store.REGION},
            ],
            "extraEnvFrom": [{"secretRef": {"name": "bucket"}}],
            "settings.spark": {
                "spark.hadoop.fs.s3a.endpoint": url,
                "spark.hadoop.fs.s3a.endpoint.region": object_store.REGION,
                "spark.hadoop.fs.s3a.path.style.access": "true",
            },
            "preflight.enabled": True,
            "http.port": free_port(),
            "console.port": free_port(),
        }
        values = (*release.values(**options), f"--set-file=pipeline.file={tmp_path}/bucket.yaml")
        release.helm("install", "bucket", CHART, *values, "--wait", "--timeout=300s")
        wait_until(lambda: release.published("bucket"), 400, "all flights are out")
        release.cluster.kubectl("delete", "pod", "-n", SPACE, "bucket-0", "--timeout=150s")
        release.feed()
        wait_until(lambda: release.published("bucket"), 400, "the new flights are out")
        told = release.cluster.kubectl("logs", "-n", SPACE, "bucket-0", "-c", "preflight")
        assert f'checkpoint "s3a://{object_store.BUCKET}/bucket": write' in told
        release.helm("uninstall", "bucket", "--wait", "--timeout=180s")
        held = object_store.system(url).get_file_info(
            fs.FileSelector(f"{object_store.BUCKET}/bucket", recursive=True)
        )
    names = {info.path.split("/")[2] for info in held}
    assert {"ikebana.json", "offsets", "commits", "shards", "state"} <= names
    assert release.said(object_store.USER["AWS_SECRET_ACCESS_KEY"]) == []
