"""Spark and its Python processes talk over socket files of the run, where their paths can be."""

import stat
from pathlib import Path

import pytest

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.spark.session import Spark, sockets

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
SETTINGS = Settings(checkpoint="state", kafka={"bootstrap.servers": "b:1"})


def test_sockets_lie_in_a_folder_of_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files have no password, so nobody else may reach them."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    with Spark(SETTINGS, "p") as spark:
        found = sockets(spark.folder)
        folder = Path(found[FOLDER])

        assert found[ENABLED] == "true"
        assert folder.parent == spark.folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(f"{folder}/.{'0' * 36}.sock") <= 103
    assert not folder.exists()


def test_a_folder_that_lies_deep_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems refuse the address of a socket that is longer than a hundred bytes."""
    deep = tmp_path / ("a" * 60)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with Spark(SETTINGS, "p") as spark:
        assert sockets(spark.folder) == {}
