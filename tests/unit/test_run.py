"""Runs: what is written is read, damage is told, and merging keeps them few."""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import MANY_BYTES, MANY_GONE, MERGE_WIDTH, to_merge
from ikebana.arrangements.run import EntryChange, Head, RunEntry
from ikebana.errors import StateFileError

HASH = "0123456789abcdef"

_changes = st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=2), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder for all examples: names are never reused."""
    return Folder.at(str(tmp_path_factory.mktemp("state")))


def _head(lower: int, upper: int) -> Head:
    states = [f"state {version}" for version in range(lower + 1, upper + 1)]
    return Head("checkpoint", 7, lower, upper, states)


def _all(folder: Folder, name: str) -> list[EntryChange]:
    return [change for block in runs.read(folder, name)[1] for change in block]


def _numbered(count: int) -> Iterator[EntryChange]:
    for number in range(count):
        yield number.to_bytes(4, "big"), str(number * number).encode()


@pytest.mark.parametrize(
    ("changes", "blocks"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([(b"", b"")], 1, id="empty key and empty value"),
        pytest.param([(b"a", None), (b"b", b""), (b"c", b"\x00\xff")], 1, id="deletion"),
        pytest.param([*_numbered(45_000)], 3, id="many entries"),
        pytest.param(
            [(b"a", b"x" * (5 << 20)), (b"b", None), (b"c", b"y" * (9 << 20)), (b"d", b"z")],
            3,
            id="values longer than a block",
        ),
    ],
)
def test_a_run_is_read_as_it_was_written(
    folder: Folder, changes: list[EntryChange], blocks: int
) -> None:
    """Head, changes and their order come back, and the run says how many there are."""
    head = _head(3, 5)

    run = runs.write(folder, head, changes, "run")

    found, read = runs.read(folder, run.name)
    listed = list(read)
    assert found == head
    assert len(listed) == blocks
    assert [change for block in listed for change in block] == changes
    size = (Path(folder.path) / run.name).stat().st_size
    plain = sum(len(key) + len(value or b"") for key, value in changes)
    assert run == RunEntry(run.name, 3, 5, "state 5", len(changes), size, plain, 0)
    assert runs.bounds(run.name) == (3, 5)


def test_a_small_delta_is_stored_as_it_is(folder: Folder) -> None:
    """It is soon merged; what is large, whether in many changes or a few, or lasts is not."""
    pytest.importorskip("ikebana.compiled._taking_apart", exc_type=ImportError)

    def many(count: int, rows: int) -> list[EntryChange]:
        row = b'{"customer":%d,"amount":17,"city":"Zurich"}'
        return [
            (b"%06d" % at, b",".join(row % (at + more) for more in range(rows)))
            for at in range(count)
        ]

    def size(changes: list[EntryChange], kind: str) -> int:
        return runs.write(folder, _head(3, 4), changes, kind).size

    small = many(2_000, 1)
    assert size(small, "delta") > 1.3 * size(small, "run")
    short: list[EntryChange] = [(b"%06d" % at, b'{"n":%d}' % at) for at in range(25_000)]
    for large in (many(20, 2_000), many(15_000, 1), short):
        assert size(large, "delta") == size(large, "run")


@given(versions=st.lists(_changes, max_size=5), portion=st.sampled_from([1, 6, 16_000]))
def test_merged_runs_are_the_dict_updated_oldest_to_youngest(
    folder: Folder, versions: list[dict[bytes, bytes | None]], portion: int
) -> None:
    """Of each key the youngest change remains, a deletion too, in key order.

    However few changes of each run are taken at a time.
    """
    names, expected = [], dict[bytes, bytes | None]()
    for version, changes in enumerate(versions):
        head = _head(version, version + 1)
        names.append(runs.write(folder, head, sorted(changes.items()), "delta").name)
        expected.update(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_PORTION", portion)
        assert list(runs.merge(folder, names)) == sorted(expected.items())


def test_runs_of_several_blocks_are_merged(folder: Folder) -> None:
    """Also where one of them ends long before the others."""
    long: list[EntryChange] = [(b"%06d" % at, b"old") for at in range(0, 90_000, 2)]
    other: list[EntryChange] = [(b"%06d" % at, b"new") for at in range(0, 75_000, 3)]
    few: list[EntryChange] = [(b"000001", b"few"), (b"000002", None)]
    names = [
        runs.write(folder, _head(at, at + 1), changes, "delta").name
        for at, changes in enumerate([long, other, few])
    ]

    merged = list(runs.merge(folder, names))

    assert merged == sorted({**dict(long), **dict(other), **dict(few)}.items())


@pytest.fixture(scope="module")
def small(folder: Folder) -> str:
    """A run of few bytes, all of which can be tried."""
    changes: list[EntryChange] = [(b"a", b"1"), (b"b", None), (b"c", b"")]
    return runs.write(folder, _head(0, 1), changes, "delta").name


@pytest.fixture(scope="module")
def long(folder: Folder) -> str:
    """A run of several blocks."""
    return runs.write(folder, _head(1, 2), _numbered(45_000), "delta").name


def _refused(folder: Folder, name: str, content: bytes) -> None:
    """Damage the file, see that reading it says so by name, and mend it."""
    path = Path(folder.path) / name
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        with pytest.raises(StateFileError) as refused:
            _all(folder, name)
    finally:
        path.write_bytes(whole)
    assert name in refused.value.message


def _flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_any_flipped_bit_of_a_small_run_is_told(folder: Folder, small: str) -> None:
    """Reading to the end raises `StateFileError`, and nothing else ever."""
    whole = (Path(folder.path) / small).read_bytes()
    for bit in range(len(whole) * 8):
        _refused(folder, small, _flipped(whole, bit))


def test_any_cut_of_a_small_run_is_told(folder: Folder, small: str) -> None:
    """A file that lacks its end is damaged, also where a block ends or nothing is left."""
    whole = (Path(folder.path) / small).read_bytes()
    for length in range(len(whole)):
        _refused(folder, small, whole[:length])


@given(data=st.data())
def test_any_damage_of_a_long_run_is_told(folder: Folder, long: str, data: st.DataObject) -> None:
    """Whichever block is hit: cut, flipped, or with bytes put in its midst or at its end."""
    whole = (Path(folder.path) / long).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damages = [
        whole[:at],
        _flipped(whole, at * 8 + data.draw(st.integers(0, 7))),
        whole[:at] + data.draw(st.binary(min_size=1, max_size=3)) + whole[at:],
        whole + data.draw(st.binary(min_size=1, max_size=20)),
    ]
    damaged = data.draw(st.sampled_from(damages))
    if damaged != whole:
        _refused(folder, long, damaged)


def test_a_head_is_read_as_it_was_written_or_not_at_all(folder: Folder, small: str) -> None:
    """A reader of the head alone, who never sees the hash of the whole, is not misled."""
    path = Path(folder.path) / small
    whole = path.read_bytes()
    try:
        for bit in range(len(whole) * 8):
            path.write_bytes(_flipped(whole, bit))
            try:
                head, _ = runs.read(folder, small)
            except StateFileError:
                continue
            assert head == _head(0, 1)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"text of another kind"], id="not a run"),
        pytest.param([b"ikebana\x03"], id="another format"),
        pytest.param([b"ikebana\x01"], id="no head"),
        pytest.param([b"ikebana\x02"], id="no head either"),
    ],
)
def test_a_whole_file_that_is_no_run_is_refused(folder: Folder, pieces: list[bytes]) -> None:
    """That a file has the hash in its name does not make it a run."""
    name, _ = folder.write("000000000009-000000000008-delta", ".run", pieces)
    with pytest.raises(StateFileError) as refused:
        _all(folder, name)
    assert name in refused.value.message


def test_a_missing_run_is_named(folder: Folder) -> None:
    """The error says which file is missing, and what to do."""
    name = f"000000000099-000000000098-delta-{HASH}.run"
    with pytest.raises(StateFileError) as refused:
        _all(folder, name)
    assert refused.value.message.endswith(f'{name}" is missing')
    assert refused.value.hint


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(f"000000000003-000000000002-delta-{HASH}.run", (2, 3), id="delta"),
        pytest.param(f"000000000064-000000000000-base-{HASH}.run", (0, 64), id="base"),
        pytest.param(f"1000000000000-000000000002-run-{HASH}.run", (2, 10**12), id="long"),
        pytest.param(f".000000000003-000000000002-run-{HASH * 2}.run", (2, 3), id="left behind"),
        pytest.param("notes.txt", None, id="text"),
        pytest.param("", None, id="no name"),
        pytest.param("a-b-c-d.run", None, id="words"),
        pytest.param(f"-1-delta-{HASH}.run", None, id="one number"),
        pytest.param(f"1-0-delta-{HASH}.run", None, id="short numbers"),
        pytest.param(f"00000000000²-000000000000-delta-{HASH}.run", None, id="superscript"),
        pytest.param(f"000000000003-000000000002-notes-{HASH}.run", None, id="another kind"),
        pytest.param(f"000000000003-000000000002-delta-{HASH}.run.bak", None, id="a copy"),
        pytest.param("000000000003-000000000002-delta-mine.run", None, id="no hash"),
    ],
)
def test_bounds_are_those_in_a_run_s_name(name: str, expected: tuple[int, int] | None) -> None:
    """A name that no run has is None, whatever else lies in the folder."""
    assert runs.bounds(name) == expected


def test_a_folder_names_files_alone(tmp_path: Path) -> None:
    """A folder within is no file, and a folder that is not there holds none."""
    assert Folder.at(str(tmp_path), "absent").names() == []

    folder = Folder.at(str(tmp_path))
    (tmp_path / f"000000000003-000000000002-delta-{HASH}.run").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    run = runs.write(folder, _head(0, 1), [], "delta")
    assert folder.names() == sorted([run.name, "notes.txt"])


def test_a_writer_that_fails_leaves_no_file(tmp_path: Path) -> None:
    """A file exists whole or not at all."""

    def broken() -> Iterator[EntryChange]:
        yield b"a", b"1"
        raise InterruptedError

    folder = Folder.at(str(tmp_path), "state")
    with pytest.raises(InterruptedError):
        runs.write(folder, _head(0, 1), broken(), "delta")
    assert list((tmp_path / "state").iterdir()) == []


def _runs(lengths: Iterable[int], sizes: Iterable[int]) -> list[RunEntry]:
    found, upper = list[RunEntry](), 0
    for length, size in zip(lengths, sizes, strict=True):
        found.append(
            RunEntry(f"run {upper}", upper, upper + length, f"state {upper}", 1, size, 0, 0)
        )
        upper += length
    return found


@pytest.mark.parametrize(
    ("lengths", "sizes", "expected"),
    [
        pytest.param([], [], 0, id="no runs"),
        pytest.param([1], [10], 0, id="one run"),
        pytest.param([1] * 8, [10] * 8, 0, id="seven after the first"),
        pytest.param([1] * 9, [10] * 9, 9, id="the rest outweighs the first by far"),
        pytest.param([50] + [1] * 8, [80] + [15] * 8, 9, id="the rest weighs half as much again"),
        pytest.param([50] + [1] * 8, [81] + [15] * 8, 8, id="eight of one length"),
        pytest.param(
            [8, 1], [2 * MANY_BYTES, 3 * MANY_BYTES], 2, id="few that are much, and enough"
        ),
        pytest.param([8, 1], [2 * MANY_BYTES, 3 * MANY_BYTES - 1], 0, id="much, but not enough"),
        pytest.param([8, 1], [MANY_BYTES // 2, MANY_BYTES - 1], 0, id="enough, but not much"),
        pytest.param([50, 8] + [1] * 7, [99] + [1] * 8, 0, id="seven of one length"),
        pytest.param([50, 8] + [1] * 8, [99] + [1] * 9, 8, id="eight after a longer one"),
        pytest.param(
            [50] + [8] * 7 + [1] * 8, [99] + [1] * 15, 15, id="eight that are the eighth"
        ),
        pytest.param(
            [50] + [64] * 7 + [8] * 7 + [1] * 8, [999] + [1] * 22, 22, id="and again the eighth"
        ),
        pytest.param(
            [50] + [64] * 7 + [8] * 6 + [1] * 8, [999] + [1] * 21, 8, id="one eighth short"
        ),
    ],
)
def test_to_merge_takes_eight_of_one_length_or_all_that_outweigh_the_base(
    lengths: list[int], sizes: list[int], expected: int
) -> None:
    """The count is of runs at the end of the list; 0 leaves them as they are."""
    assert to_merge(_runs(lengths, sizes)) == expected


@pytest.mark.parametrize(
    ("sizes", "gone", "expected"),
    [
        pytest.param([1000, MANY_GONE], [0, MANY_GONE], 2, id="half, and more"),
        pytest.param([1000, MANY_GONE], [0, MANY_GONE // 2], 0, id="less than half"),
        pytest.param([1000, MANY_GONE // 2], [0, MANY_GONE], 0, id="little in all"),
        pytest.param([MANY_GONE], [0], 0, id="a base alone"),
    ],
)
def test_what_deletes_half_of_what_there_is_is_merged_soon(
    sizes: list[int], gone: list[int], expected: int
) -> None:
    runs = [
        RunEntry("", at, at + 1, "", 1, size, size, of)
        for at, (size, of) in enumerate(zip(sizes, gone, strict=True))
    ]

    assert to_merge(runs) == expected


@given(
    deltas=st.integers(1000, 4000),
    size=st.integers(1, 1000),
    distinct=st.one_of(st.just(1), st.integers(1, 100), st.just(10**6)),
)
def test_equal_deltas_make_few_runs_and_are_rewritten_few_times(
    deltas: int, size: int, distinct: int
) -> None:
    """Runs, and rewritten bytes per byte of a delta, are O(log n), and the line adjoins.

    Merged, `distinct` deltas are all that is not overwritten.
    """
    line, rewritten = list[RunEntry](), 0
    bound = math.log(deltas, MERGE_WIDTH) + 1
    for version in range(deltas):
        if count := to_merge(line):
            replaced = line[-count:]
            lower, upper = replaced[0].lower, replaced[-1].upper
            weight = size * min(upper - lower, distinct)
            rewritten += weight
            line[-count:] = [RunEntry("run", lower, upper, f"state {upper}", 1, weight, 0, 0)]
        line.append(RunEntry("delta", version, version + 1, f"state {version + 1}", 1, size, 0, 0))
        assert line[0].lower == 0
        assert all(before.upper == after.lower for before, after in pairwise(line))
        assert len(line) <= 1 + MERGE_WIDTH * bound
    # Merging by eights is log n times; growing the base is at most thrice on the whole.
    assert rewritten <= deltas * size * (bound + 3)


@given(deltas=st.integers(1000, 4000))
def test_every_change_is_rewritten_about_log_n_times(deltas: int) -> None:
    """Where nothing is overwritten, no change is an unlucky one."""
    line, rewrites = list[RunEntry](), [0] * deltas
    for version in range(deltas):
        if count := to_merge(line):
            lower, upper = line[-count].lower, line[-1].upper
            for merged in range(lower, upper):
                rewrites[merged] += 1
            line[-count:] = [
                RunEntry("run", lower, upper, f"state {upper}", 1, upper - lower, 0, 0)
            ]
        line.append(RunEntry("delta", version, version + 1, f"state {version + 1}", 1, 1, 0, 0))

    assert max(rewrites) <= math.log2(deltas) + math.log(deltas, MERGE_WIDTH)
