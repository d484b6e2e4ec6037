"""Who may import whom: each folder only what stands before it, and each library in one place."""

import ast
import functools
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# It reaches the folders at the root by links.
PACKAGE = ROOT / "src" / "ikebana"

# Imports run one way: a folder imports itself and those before it.
ORDER = (
    "errors.py",
    "compiled",
    "arrangements",
    "codecs",
    "processor/base",
    "processor/linear",
    "processor/kernels",
    "processor/planning",
    "processor/topics",
    "processor/relational",
    "processor/authoring",
    "processor/checkpoint",
    "processor/kafka",
    "processor/engine",
    "processor/explain",
    "processor/watching",
    "processor/spark",
    "processor/building",
    "serving",
    "delivering",
    "processor/cli",
)
# The folders at the root.
TOP = ("arrangements", "codecs", "compiled", "delivering", "processor", "serving")
# Beside the standard library; a name allows what lies below it as well.
ALLOWED = {
    "errors.py": (),
    "compiled": ("ikebana.compiled",),
    "arrangements": (
        "ikebana.arrangements",
        "ikebana.compiled",
        "ikebana.errors",
        "msgspec",
        "pyarrow",
        "rocksdict",
    ),
    "codecs": (
        "ikebana.arrangements.update",
        "ikebana.codecs",
        "ikebana.compiled",
        "ikebana.errors",
        "fastavro",
        "msgspec",
    ),
}
ONLY_IN = {
    # The names and values of settings are the client's.
    "confluent_kafka": ("processor/kafka/", "processor/authoring/settings.py"),
    "deltalake": ("delivering/delta.py", "processor/topics/row_files.py"),
    "duckdb": (
        "processor/linear/",
        "serving/sql.py",
        "delivering/columns.py",
        "delivering/lake.py",
    ),
    "pyiceberg": ("delivering/iceberg.py", "processor/topics/row_files.py"),
    "psycopg": ("delivering/postgres.py",),
    "prometheus_client": (
        "processor/watching/monitor.py",
        "serving/http_server.py",
        "delivering/delivery.py",
    ),
    "pyspark": ("processor/spark/",),
    "sqlalchemy": ("delivering/iceberg.py",),
    "starlette": ("processor/watching/", "serving/http_server.py", "serving/operations.py"),
    "uvicorn": ("processor/watching/front.py",),
    "uvloop": ("processor/watching/front.py", "serving/http_server.py"),
    "rocksdict": ("arrangements/rocks.py", "arrangements/shared_rocks.py"),
}
PURE = (
    "processor/authoring/proposing/",
    "processor/base/",
    "processor/checkpoint/",
    "processor/engine/dataflow.py",
    "processor/engine/evaluate.py",
    "processor/planning/progress.py",
    "processor/explain/",
    "processor/kernels/",
    "processor/planning/",
    "processor/topics/input_times.py",
    "processor/topics/batch_selection.py",
    "processor/topics/event_time.py",
    "processor/topics/input_times.py",
    "processor/topics/intake.py",
    "processor/topics/messages.py",
    "processor/topics/source_transactions.py",
    "processor/topics/source_transactions.py",
    "processor/topics/intake.py",
)
# Of these folders, the modules that reach files, processes and clocks.
NOT_PURE = (
    "processor/base/arrow_json.py",
    "processor/base/calls.py",
    "processor/base/listening.py",
    "processor/base/log_lines.py",
    "processor/base/machine.py",
    "processor/base/processes.py",
    "processor/base/texts.py",
    "processor/base/notices.py",
    "processor/checkpoint/checkpoint.py",
    "processor/checkpoint/rescale.py",
)
# Files, networks, clocks, chance, and what reaches them.
IMPURE = (
    "confluent_kafka",
    "datetime",
    "io",
    "ikebana.arrangements.files",
    "ikebana.arrangements.rocks",
    "ikebana.arrangements.shared_rocks",
    "ikebana.arrangements.run",
    "ikebana.arrangements.shard",
    "ikebana.processor.kafka",
    "ikebana.processor.spark",
    "os",
    "pathlib",
    "pyarrow",
    "pyspark",
    "random",
    "rocksdict",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
)


@functools.cache
def imported(text: str) -> set[str]:
    """Every module that a text imports, wherever in it; `from a import b` is a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {module} | {f"{module}.{name.name}" for name in node.names}
    return found


def offences(path: str, text: str) -> list[str]:
    """What the module at `path` imports against the rules."""
    folder, modules = path.split("/")[0], imported(text)
    # `from a.b import c` names a.b too: it is judged by c when that is a module of ours.
    judged = {
        module
        for module in modules
        if not any(other.startswith(f"{module}.") for other in modules)
        or module.partition(".")[0] != "ikebana"
    }
    wrong = {module for module in modules if module.startswith(".")}
    if folder in ALLOWED:
        wrong |= {
            module
            for module in judged
            if module.partition(".")[0] not in sys.stdlib_module_names
            and not _below(module, *ALLOWED[folder])
        }
    for library, places in ONLY_IN.items():
        if not path.startswith(places):
            wrong |= {module for module in modules if _below(module, library)}
    if path.startswith(PURE) and path not in NOT_PURE:
        wrong |= {module for module in modules if _below(module, *IMPURE)}
    return sorted(wrong)


def upward(path: str, text: str) -> list[str]:
    """What the module at `path` imports from folders that stand behind its own."""
    own = ORDER.index(_folder(path))
    found = set()
    for module in imported(text):
        place = _place(module)
        # `from ikebana.processor import task` names the package of all folders, too.
        if place is not None and ORDER.index(place) > own and module != "ikebana.processor":
            found.add(module)
    return sorted(found)


def _place(module: str) -> str | None:
    """The entry of `ORDER` that a module, or a name in one, belongs to."""
    package, _, below = module.partition(".")
    path = below.replace(".", "/") if package == "ikebana" else ""
    while path:
        for place in (path, f"{path}.py"):
            if place in ORDER:
                return place
        path = path.rpartition("/")[0]
    return None


def circles(texts: Mapping[str, str]) -> list[list[str]]:
    """The modules, of those with these texts by their paths, that import each other in a circle.

    >>> circles({"a.py": "import ikebana.b", "b.py": "def f():\\n    from ikebana import a"})
    [['a.py', 'b.py']]
    """
    paths = {_module(path): path for path in texts}
    imports = {
        path: {paths[module] for module in imported(text) if module in paths} - {path}
        for path, text in texts.items()
    }
    reached = {path: _reached(path, imports) for path in imports}
    together = {
        tuple(sorted(other for other in reached[path] if path in reached[other]))
        for path in imports
    }
    return sorted(list(each) for each in together if each)


def _reached(path: str, imports: Mapping[str, set[str]]) -> set[str]:
    """What a module imports, and what is imported of that."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for other in imports[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def _module(path: str) -> str:
    return "ikebana." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _folder(path: str) -> str:
    top, *rest = path.split("/")
    return f"{top}/{rest[0]}" if top == "processor" and len(rest) > 1 else top


def _below(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _modules() -> list[str]:
    folders = (PACKAGE / folder for folder in TOP)
    paths = [PACKAGE / "errors.py", *(path for folder in folders for path in folder.rglob("*.py"))]
    return sorted(str(path.relative_to(PACKAGE)) for path in paths)


@pytest.mark.parametrize("path", _modules())
def test_a_module_imports_only_what_its_place_allows(path: str) -> None:
    """arrangements <- codecs <- processor, one place for each library, and pure kernels."""
    assert offences(path, (PACKAGE / path).read_text()) == []


@pytest.mark.parametrize("path", _modules())
def test_imports_run_one_way(path: str) -> None:
    """Wherever they stand in a module, and for type checkers alone, too."""
    assert upward(path, (PACKAGE / path).read_text()) == []


def test_the_map_of_the_architecture_has_this_order() -> None:
    """Its table names the folders from the bottom up."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)

    assert [row.removesuffix("/*.py").rstrip("/") for row in rows][: len(ORDER)] == list(ORDER)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Within a folder, too, wherever imports stand, and for type checkers alone."""
    assert circles({path: (PACKAGE / path).read_text() for path in _modules()}) == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({"a": "b", "b": "c", "c": ""}, [], id="a line"),
        pytest.param({"a": "b", "b": "a"}, [["a.py", "b.py"]], id="two"),
        pytest.param(
            {"a": "b", "b": "c", "c": "a", "d": "a"}, [["a.py", "b.py", "c.py"]], id="three"
        ),
        pytest.param(
            {"a": "b", "b": "a c", "c": "d", "d": "c"},
            [["a.py", "b.py"], ["c.py", "d.py"]],
            id="two circles",
        ),
        pytest.param({"a": "a"}, [], id="itself"),
    ],
)
def test_a_circle_is_seen(texts: dict[str, str], expected: list[list[str]]) -> None:
    """With all that is in it, and nothing that only leads there."""
    lazy = "def later():\n    if TYPE_CHECKING:\n        from ikebana import {}\n"
    made = {
        f"{name}.py": "".join(lazy.format(each) for each in imports.split())
        for name, imports in texts.items()
    }

    assert circles(made) == expected


def test_every_folder_has_its_place() -> None:
    """A new one is put where it belongs."""
    assert {_folder(path) for path in _modules()} == set(ORDER)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        pytest.param(
            "processor/planning/plan.py",
            "def late():\n    from ikebana.processor.topics import intake",
            ["ikebana.processor.topics", "ikebana.processor.topics.intake"],
            id="within a function",
        ),
        pytest.param(
            "processor/engine/task.py", "from ikebana.processor.kafka import client", [], id="down"
        ),
        pytest.param(
            "processor/kafka/client.py",
            "from ikebana.processor.engine import task",
            ["ikebana.processor.engine", "ikebana.processor.engine.task"],
            id="a module of a later folder",
        ),
        pytest.param(
            "errors.py",
            "from ikebana.arrangements.update import Update",
            ["ikebana.arrangements.update", "ikebana.arrangements.update.Update"],
            id="the bottom",
        ),
        pytest.param(
            "codecs/diff.py", "from ikebana.errors import ConfigError", [], id="down to it"
        ),
        pytest.param("codecs/diff.py", "import json\nimport ikebana", [], id="others"),
    ],
)
def test_an_import_upward_is_seen(path: str, text: str, expected: list[str]) -> None:
    """And one downward is none."""
    assert upward(path, text) == expected


@pytest.mark.parametrize("folder", sorted(set(TOP) - {"compiled"}))
def test_a_top_level_folder_is_no_package_of_its_own(folder: str) -> None:
    """An `__init__.py` would make `codecs` hide the standard library's from type checkers."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_every_place_that_a_rule_names_exists() -> None:
    """A rule about a file that has moved would hold for ever and say nothing."""
    only = (place for places in ONLY_IN.values() for place in places)
    for place in (*PURE, *NOT_PURE, *only, *ORDER):
        assert (PACKAGE / place).exists(), place


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        pytest.param(
            "arrangements/update.py", "import pyspark.sql", ["pyspark.sql"], id="a library"
        ),
        pytest.param(
            "arrangements/update.py",
            "from ikebana.codecs import plain",
            ["ikebana.codecs.plain"],
            id="leftward from arrangements",
        ),
        pytest.param(
            "codecs/plain.py",
            "from ikebana import processor",
            ["ikebana.processor"],
            id="leftward from codecs",
        ),
        pytest.param(
            "codecs/plain.py",
            "from ikebana.arrangements import store, update",
            ["ikebana.arrangements.store"],
            id="more of arrangements than codecs may",
        ),
        pytest.param(
            "arrangements/store.py", "import rocksdict", ["rocksdict"], id="beside the one place"
        ),
        pytest.param(
            "processor/cli/run.py",
            "def command():\n    from pyspark.sql import SparkSession",
            ["pyspark.sql", "pyspark.sql.SparkSession"],
            id="within a function",
        ),
        pytest.param(
            "processor/topics/reclock.py",
            "if True:\n    try:\n        import confluent_kafka\n    except ImportError: ...",
            ["confluent_kafka"],
            id="within a try",
        ),
        pytest.param(
            "processor/kernels/upsert.py",
            "class A:\n    import time as clock",
            ["time"],
            id="a clock in a kernel",
        ),
        pytest.param(
            "processor/planning/plan.py",
            "from ikebana.arrangements import shard",
            ["ikebana.arrangements.shard"],
            id="files by way of a module of ours",
        ),
        pytest.param("codecs/plain.py", "from . import diff", [".", "..diff"], id="relative"),
    ],
)
def test_the_rules_see_an_offence(path: str, text: str, expected: list[str]) -> None:
    """An import against the rules is found wherever it stands."""
    assert offences(path, text) == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("arrangements/rocks.py", "from rocksdict import Rdict", id="the one place"),
        pytest.param("arrangements/run.py", "import heapq\nimport msgspec", id="library"),
        pytest.param(
            "codecs/plain.py",
            "from ikebana import errors\nfrom ikebana.arrangements import update",
            id="rightward",
        ),
        pytest.param("processor/kernels/upsert.py", "import heapq", id="pure library"),
        pytest.param("processor/kafka/reader.py", "import confluent_kafka, time", id="a shell"),
    ],
)
def test_the_rules_allow_what_they_should(path: str, text: str) -> None:
    """A rule that refuses everything is no rule."""
    assert offences(path, text) == []
