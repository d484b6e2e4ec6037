"""The drawing of a served plan follows its file."""

from pathlib import Path

from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.planning.plan import Plan
from ikebana.processor.watching.console import PlanOfFile

TEXT = """\
pipeline: shop
inputs: {stock: {topic: stock, columns: {n: BIGINT}}}
operators: {current: {upsert: stock}}
outputs: {changes: {from: current, topic: stock.changes}}
kafka: {bootstrap.servers: b:1}
run: {checkpoint: c}
"""


def test_a_changed_file_is_drawn_again(tmp_path: Path) -> None:
    """And only then; a file that cannot be read changes nothing."""
    file = tmp_path / "shop.yaml"
    file.write_text(TEXT)
    reads: list[Plan] = []

    def read() -> Plan:
        reads.append(parse(file.read_text(), str(file), environ={}).plan)
        return reads[-1]

    drawn = PlanOfFile(read(), read, lambda: file.stat().st_size)
    first = drawn()
    assert drawn() is first
    assert len(reads) == 1

    file.write_text(TEXT + "  checkpoint: twice\nnothing: 1\n")
    assert drawn() is first

    edited = TEXT.replace(
        "upsert: stock}", "upsert: stock}, large: {linear: current, where: n > 9}"
    )
    file.write_text(edited.replace("from: current", "from: large"))
    assert drawn().fingerprint == reads[-1].fingerprint() != first.fingerprint
    assert "large" in drawn().drawings[0].svg
