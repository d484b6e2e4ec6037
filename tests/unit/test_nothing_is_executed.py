"""Nothing that comes from a topic or a checkpoint is executed, or unpacked by what executes.

Each place of our code that could do so stands in `EXCUSED`, with where its bytes come from; what
topics and checkpoints hold is JSON, MessagePack, Avro and the project's own blocks of bytes.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "arrangements",
    "codecs",
    "compiled",
    "processor",
    "serving",
    "delivering",
    "deploy",
    "src/ikebana",
)

# Modules that execute what they read, by importing what it names.
MODULES = {
    *("pickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"),
    *("ctypes", "code", "codeop", "runpy", "xmlrpc", "multiprocessing"),
}
# Calls of builtins by name, and of functions of modules by their last name.
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "import_module": "imports by name",
    "read_pickle": "unpickles",
    "to_pickle": "pickles",
    "system": "runs a shell",
    "popen": "runs a shell",
}
# PyYAML makes objects of any class with these.
OF_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}
SERIALIZERS = {"CPickleSerializer", "PickleSerializer", "CloudPickleSerializer"}

EXCUSED = {
    "processor/spark/keyed_operator.py: pickle": (
        "the driver's job, which comes with the code of its tasks, as Spark sends both"
    ),
    "processor/spark/workers/serving.py: pickle": (
        "the same job, and what a batch reads, over sockets in a folder that only the run's user "
        "may look into"
    ),
    **dict.fromkeys(
        (f"processor/spark/workers/{name}.py: pickle" for name in ("owners", "network")),
        "only made, for those sockets",
    ),
    "processor/base/calls.py: ctypes": "it stops a thread of ours, and reads nothing",
    "processor/cli/main.py: import_module": "a command, by a table of ours",
    "codecs/formats.py: import_module": "a codec of ours, by the table of formats",
    "codecs/protobuf.py: import_module": (
        "parts of google.protobuf, which may not be installed: those of a list of ours, and its "
        "well-known types, by names that are identifiers"
    ),
    "delivering/delivery.py: import_module": "a sink of ours, by the table of targets",
    "processor/spark/failures.py: import_module": (
        "a module of ours, which a failure of Spark's names as that of an error: ikebana.…"
    ),
    "processor/linear/functions.py: import_module": (
        "the module of a pipeline's functions, which the pipeline file names, or the plan of a "
        "checkpoint: so who may write there is trusted (docs/security.md)"
    ),
    "processor/spark/workers/daemon.py: ctypes": "it calls prctl, and reads nothing",
    "processor/spark/workers/host.py: import_module": "modules by a list of ours, ahead of tasks",
    "processor/spark/workers/host.py: runpy": "Spark's worker or ours, as the run's driver says",
    "src/ikebana/__init__.py: import_module": "a part of the package, by a table of ours",
}


def risky(text: str) -> Iterator[str]:
    """What in a module executes what it reads, by the name that excuses it."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if _top(each.name) in MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if _top(module) in MODULES:
                    yield module
                yield from (each.name for each in names if each.name in SERIALIZERS)
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS or name in CALLS:
                yield name
            case ast.Call(
                func=ast.Name(id="partial") | ast.Attribute(attr="partial"),
                args=[ast.Name(id=name), *_],
            ):
                if name in BUILTINS or name in CALLS:
                    yield name
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="yaml"))):
                if name in OF_YAML:
                    yield f"yaml.{name}"
            case ast.Call(func=ast.Attribute(attr=name)) if name in CALLS:
                yield name
            case ast.Attribute(attr=name) if name in SERIALIZERS:
                yield name
            case ast.keyword(arg="shell" | "allow_pickle" as name, value=ast.Constant(value=True)):
                yield name


def _top(module: str) -> str:
    return module.partition(".")[0]


def found() -> set[str]:
    """What our modules do, as `EXCUSED` names it."""
    paths = {
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        # src/ikebana has links to the other folders.
        if path == path.resolve()
    }
    assert len(paths) > 300
    return {
        f"{path.relative_to(ROOT)}: {name}" for path in paths for name in risky(path.read_text())
    }


def test_only_what_is_excused_executes_what_it_reads() -> None:
    """And what is excused is there: an excuse for nothing would let something else in."""
    assert found() == set(EXCUSED)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle"),
        ("import marshal as m", "marshal"),
        ("import shelve", "shelve"),
        ("import multiprocessing.connection", "multiprocessing.connection"),
        ("eval(x)", "eval"),
        ("exec(x)", "exec"),
        ("compile(x, 'f', 'exec')", "compile"),
        ("yaml.load(x, yaml.Loader)", "yaml.load"),
        ("yaml.unsafe_load(x)", "yaml.unsafe_load"),
        ("importlib.import_module(x)", "import_module"),
        ("from importlib import import_module\nimport_module(x)", "import_module"),
        ("functools.partial(import_module, x)", "import_module"),
        ("numpy.load(x, allow_pickle=True)", "allow_pickle"),
        ("subprocess.run(x, shell=True)", "shell"),
        ("os.system(x)", "system"),
        ("pandas.read_pickle(x)", "read_pickle"),
        ("from pyspark.serializers import CPickleSerializer", "CPickleSerializer"),
        ("pyspark.serializers.CPickleSerializer()", "CPickleSerializer"),
    ],
)
def test_what_executes_is_seen(text: str, name: str) -> None:
    """In each of its spellings."""
    assert name in set(risky(text))


@pytest.mark.parametrize(
    "text", ["yaml.safe_load(x)", "re.compile(x)", "kind.compile(x)", "json.loads(x)", "load(x)"]
)
def test_what_only_looks_alike_is_not(text: str) -> None:
    """A method called `compile` executes nothing."""
    assert list(risky(text)) == []
