"""A folder of logs is formatted by Kafka's tool once, and then as the tool did it."""

from pathlib import Path

from ikebana.processor.kafka.broker import META, format_folder, is_formatted, random_id


class Tool:
    """Kafka's storage tool, as far as files go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids: list[str] = []

    def __call__(self, cluster_id: str) -> None:
        self.ids.append(cluster_id)
        self.folder.mkdir()
        (self.folder / "bootstrap.checkpoint").write_bytes(b"features")
        (self.folder / META).write_text(f"version=1\ncluster.id={cluster_id}\n")


def properties(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / META).read_text().splitlines())


def test_the_tool_is_run_once_for_all_folders(tmp_path: Path) -> None:
    """Each cluster has ids of its own, and the features that the tool has written."""
    lib, folders = tmp_path / "kafka-4.2.1", [tmp_path / name for name in "abc"]
    lib.mkdir()
    tools = [Tool(folder) for folder in folders]

    for folder, tool in zip(folders, tools, strict=True):
        assert not is_formatted(folder)
        format_folder(folder, lib, 1, tool)

    assert [len(tool.ids) for tool in tools] == [1, 0, 0]
    assert all(is_formatted(folder) for folder in folders)
    assert {(folder / "bootstrap.checkpoint").read_bytes() for folder in folders} == {b"features"}
    found = [properties(folder) for folder in folders[1:]]
    assert [(each["version"], each["node.id"]) for each in found] == [("1", "1")] * 2
    assert len({each[name] for each in found for name in ("cluster.id", "directory.id")}) == 4
    assert {file.name for folder in folders for file in folder.iterdir()} == {
        "bootstrap.checkpoint",
        META,
    }


def test_a_cache_that_cannot_be_written_costs_a_run_of_the_tool(tmp_path: Path) -> None:
    lib, tool = tmp_path / "missing" / "kafka-4.2.1", Tool(tmp_path / "a")

    format_folder(tool.folder, lib, 1, tool)

    assert len(tool.ids) == 1
    assert is_formatted(tool.folder)


def test_no_id_reads_as_an_option() -> None:
    ids = {random_id() for _ in range(1_000)}

    assert len(ids) == 1_000
    assert {len(each) for each in ids} == {22}
    assert not any(each.startswith("-") for each in ids)
