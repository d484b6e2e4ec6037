"""Build the wheel and the source distribution, and try each in an empty environment.

    python deploy/distributions.py FOLDER

FOLDER gets both.  Each is installed by pip, with all that it depends on, into a virtual
environment that has nothing else.  There `ikebana --version` has to tell the version of
pyproject.toml, with compiled code, and a pipeline is evaluated over a few records.  The script
needs the package `build`.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_LONGEST_S = 1800
_EVALUATION = """
import ikebana
names = ikebana.Pipeline("names")
names.topic("names").upsert().to("diffs")
found = names.evaluate(names=[("frank", "murray", 0), ("frank", "mcsherry", 1)])["diffs"]
print(*(f"{update.data[1]}{update.diff:+}@{update.time}" for update in found))
"""
_EVALUATED = "murray+1@0 murray-1@1 mcsherry+1@1"


def version() -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def built(folder: Path) -> list[Path]:
    """Build both, the wheel from the source distribution; return where they are."""
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (source,) = folder.glob(f"ikebana-{version()}.tar.gz")
    (wheel,) = folder.glob(f"ikebana-{version()}-*.whl")
    return [source, wheel]


def tried(file: Path) -> None:
    """Install a distribution and use it.  Raises: AssertionError, SubprocessError."""
    with tempfile.TemporaryDirectory(prefix="ikebana-") as name:
        home = Path(name) / "environment"
        venv.create(home, with_pip=True)
        python = home / "bin" / "python"
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file)
        # In a folder without the project, so that only what is installed is found.
        words = _run(home / "bin" / "ikebana", "--version", within=name)
        assert words == f"ikebana {version()}, with compiled code", words
        evaluated = _run(python, "-c", _EVALUATION, within=name)
        assert evaluated == _EVALUATED, evaluated
    print(f"{file.name}: {words}")


def _run(*command: str | Path, within: str | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=within,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LONGEST_S,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    made = Path(sys.argv[1]).resolve()
    made.mkdir(parents=True, exist_ok=True)
    for each in built(made):
        tried(each)
