"""A file of settings over a pipeline file, and values that stand in files of their own."""

from pathlib import Path

import pytest

from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline

PIPELINE = """\
pipeline: whereabouts
inputs: {flights: {topic: flights}}
operators: {aircraft: {upsert: flights}}
outputs: {diffs: {from: aircraft, topic: whereabouts}}
kafka: {bootstrap.servers: here:1, client.id: mine}
run: {shards: 2}
"""


def read(folder: Path, settings: str, text: str = PIPELINE) -> pipeline.ConfiguredPlan:
    """Both files as `ikebana run` reads them."""
    (folder / "pipeline.yaml").write_text(text)
    (folder / "settings.yaml").write_text(settings)
    return pipeline.read(
        folder / "pipeline.yaml", environ={"IKEBANA_SETTINGS": str(folder / "settings.yaml")}
    )


def test_settings_win_key_by_key(tmp_path: Path) -> None:
    """What the settings file says wins; what it does not say stays."""
    found = read(tmp_path, "kafka: {bootstrap.servers: there:2}\nrun: {checkpoint: /c}\n")
    assert found.settings.kafka == {"bootstrap.servers": "there:2", "client.id": "mine"}
    assert found.settings.checkpoint == "/c"
    assert found.settings.shards == 2


def test_settings_do_not_change_the_plan(tmp_path: Path) -> None:
    """The plan is the pipeline file's alone: a section of it in a settings file is refused."""
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "run: {checkpoint: /c}\noutputs: {diffs: {topic: other}}\n")
    assert "outputs: does not belong in a file of settings; these do" in str(refused.value)
    assert f"({tmp_path}/settings.yaml, line 2)" in str(refused.value)


def test_a_problem_names_the_file_that_it_is_in(tmp_path: Path) -> None:
    """Lines of the settings file are told with its name, those of the pipeline file without."""
    with pytest.raises(ConfigError) as refused:
        read(
            tmp_path,
            "run:\n  checkpoint: /c\n  shards: none\n",
            PIPELINE.replace("client.id", "group.id"),
        )
    lines = str(refused.value).splitlines()
    assert lines[1].endswith("kafka.group.id: is for ikebana alone to set (line 5)")
    assert lines[2].startswith("  run.shards: ")
    assert lines[2].endswith(f"({tmp_path}/settings.yaml, line 3)")


@pytest.mark.parametrize("settings", ["- a", "text"])
def test_settings_are_a_mapping(tmp_path: Path, settings: str) -> None:
    """Anything but a mapping of sections is refused by the file's name."""
    with pytest.raises(ConfigError, match=r"settings\.yaml: is not a mapping of settings"):
        read(tmp_path, settings)


def test_an_empty_settings_file_changes_nothing(tmp_path: Path) -> None:
    """It is as if it were not there."""
    text = PIPELINE.replace("{shards: 2}", "{shards: 2, checkpoint: /c}")
    assert read(tmp_path, "", text).settings.checkpoint == "/c"


def test_a_missing_settings_file_is_named(tmp_path: Path) -> None:
    """A settings file that cannot be read is an error, not a default."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    with pytest.raises(ConfigError, match=r"could not read settings file /none: No such file"):
        pipeline.read(tmp_path / "pipeline.yaml", environ={"IKEBANA_SETTINGS": "/none"})


def test_a_secret_in_a_file_is_read_and_not_shown(tmp_path: Path) -> None:
    """`${file:PATH}` is the file's text without its last line end; no repr shows it."""
    (tmp_path / "password").write_text("p: ${x}#\n")
    found = read(
        tmp_path,
        f"kafka:\n  sasl.password: ${{file:{tmp_path}/password}}\nrun: {{checkpoint: /c}}\n",
    )
    assert found.settings.kafka["sasl.password"] == "p: ${x}#"
    assert "p: ${x}#" not in repr(found.settings)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(None, "could not be read: No such file or directory", id="missing"),
        pytest.param(b"\xff", "is not UTF-8 text", id="not text"),
    ],
)
def test_a_secret_that_is_not_there_is_named(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """A problem names the key, the file and the reason."""
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(
        ConfigError, match=f"sasl.password: the file {tmp_path}/password {problem}"
    ):
        read(
            tmp_path,
            f"kafka:\n  sasl.password: ${{file:{tmp_path}/password}}\nrun: {{checkpoint: /c}}\n",
        )
