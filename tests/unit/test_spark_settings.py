"""Spark's settings for a run: which are ours, and what follows from where it runs."""

from pathlib import Path

import pytest

from ikebana.processor.configuring.settings import Settings
from ikebana.processor.spark.run_folder import RunFolder
from ikebana.processor.spark.session import spark_settings

FILE_SYSTEM = "spark.hadoop.fs.file.impl"
KAFKA = {"bootstrap.servers": "b:1"}


@pytest.mark.parametrize("checkpoint", ["state", "/var/state", "file:///var/state", "file:/var/s"])
def test_files_of_a_local_checkpoint_are_written_without_other_programs(checkpoint: str) -> None:
    """Hadoop's usual class runs chmod and readlink for each."""
    options = spark_settings(Settings(checkpoint=checkpoint, kafka=KAFKA), "p")

    assert options[FILE_SYSTEM] == "org.apache.hadoop.fs.RawLocalFileSystem"
    assert options["spark.sql.streaming.checkpoint.fileChecksum.enabled"] == "false"
    assert options["spark.sql.streaming.checkpointFileManagerClass"].endswith(
        ".FileSystemBasedCheckpointFileManager"
    )


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/state", "hdfs://h/state", "gs://b/state"])
def test_files_of_another_checkpoint_are_sparks_matter(checkpoint: str) -> None:
    """An object store has ways of its own to make a file appear as a whole."""
    options = spark_settings(Settings(checkpoint=checkpoint, kafka=KAFKA), "p")

    assert FILE_SYSTEM not in options
    assert not [name for name in options if name.startswith("spark.sql.streaming.checkpoint")]


def test_a_user_may_want_hadoops_usual_files() -> None:
    """Each of these settings is a default."""
    usual = {FILE_SYSTEM: "org.apache.hadoop.fs.LocalFileSystem"}

    options = spark_settings(Settings(checkpoint="state", kafka=KAFKA, spark=usual), "p")

    assert options[FILE_SYSTEM] == usual[FILE_SYSTEM]


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
