"""Spark's settings for a run: which are ours, and what follows from where it runs."""

import logging
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.spark.session import RunFolder, Spark, is_news, spark_settings
from ikebana.processor.spark.workers.starting import PROGRAM, PYTHON_VARIABLE

FILE_SYSTEM = "spark.hadoop.fs.file.impl"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
KAFKA = {"bootstrap.servers": "b:1"}


@pytest.mark.parametrize("checkpoint", ["state", "/var/state", "file:///var/state", "file:/var/s"])
def test_files_of_a_local_checkpoint_are_written_without_other_programs(checkpoint: str) -> None:
    """Spark's usual manager runs chmod and readlink for each.

    The class of local files stays Hadoop's own: Spark's state store casts to it.
    """
    options = spark_settings(Settings(checkpoint=checkpoint, kafka=KAFKA), "p")

    assert options[FILE_MANAGER].endswith(".FileSystemBasedCheckpointFileManager")
    assert options["spark.sql.streaming.checkpoint.fileChecksum.enabled"] == "false"
    assert FILE_SYSTEM not in options


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/state", "hdfs://h/state", "gs://b/state"])
def test_files_of_another_checkpoint_are_sparks_matter(checkpoint: str) -> None:
    """An object store has ways of its own to make a file appear as a whole."""
    options = spark_settings(Settings(checkpoint=checkpoint, kafka=KAFKA), "p")

    assert not [name for name in options if name.startswith("spark.sql.streaming.checkpoint")]


def test_a_user_may_want_hadoops_usual_files() -> None:
    """Each of these settings is a default."""
    prefix = "org.apache.spark.sql.execution.streaming.checkpointing"
    usual = {FILE_MANAGER: f"{prefix}.FileContextBasedCheckpointFileManager"}

    options = spark_settings(Settings(checkpoint="state", kafka=KAFKA, spark=usual), "p")

    assert options[FILE_MANAGER] == usual[FILE_MANAGER]


@pytest.mark.parametrize("chosen", [None, "/opt/other/python"])
def test_a_cluster_runs_our_python_unless_another_is_chosen(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's default is the `python3` of the path, which need not have ikebana.

    Ours is a program in the installation, which asks the host of its machine for a fork.
    """
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    settings = Settings(checkpoint="state", kafka=KAFKA, master="spark://h:7077")

    with Spark(settings, "p") as spark, spark._environment():
        assert os.environ["PYSPARK_PYTHON"] == (chosen or str(PROGRAM))
    assert spark_settings(settings, "p")[f"spark.executorEnv.{PYTHON_VARIABLE}"] == sys.executable

    assert os.environ.get("PYSPARK_PYTHON") == chosen


def test_the_folder_of_a_run_is_made_when_it_is_needed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that never asks for it makes none, and removes none."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = RunFolder()
    folder.remove()
    assert list(tmp_path.iterdir()) == []

    (folder.path / "within").mkdir()
    assert folder.path.parent == tmp_path
    assert folder.path == folder.path

    folder.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dropped", [False, True])
def test_a_call_that_the_end_of_the_jvm_cuts_off_is_told_by_its_caller(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, dropped: bool
) -> None:
    """Py4J logs it too, with a traceback; what else is logged is heard."""
    root = logging.getLogger()
    # A session that an earlier test has begun in this process has the filter still.
    monkeypatch.setattr(root, "filters", [is_news] if dropped else [])

    def cut_off(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                asked, _ = listener.accept()
                with asked:
                    asked.recv(1024)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=cut_off, args=[listener], daemon=True).start()
        at = GatewayParameters(port=listener.getsockname()[1])
        if dropped:
            root.addFilter(is_news)
        try:
            with pytest.raises(Py4JError):
                JavaGateway(gateway_parameters=at).jvm.System.nanoTime()
            root.error("something else")
        finally:
            root.removeFilter(is_news)
            listener.shutdown(socket.SHUT_RDWR)
    assert "something else" in caplog.messages
    assert ("Exception while sending command." in caplog.messages) != dropped
