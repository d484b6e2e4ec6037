"""ikebana as it is shipped: its wheel, in an environment laid out as the Dockerfile does it.

Python's packages and Java are those of the tests; ikebana is the wheel, and nothing of the
checkout can be imported.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from ikebana.processor.base.machine import find_java

ROOT = Path(__file__).resolve().parents[2]
_HOME = "/opt/ikebana"


@dataclass(frozen=True, slots=True)
class Shipped:
    """An installation in `folder`, which is the image's /opt/ikebana."""

    folder: Path

    @property
    def command(self) -> str:
        """The command `ikebana` of the installation."""
        return str(self.folder / "bin" / "ikebana")

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the Dockerfile sets, with the places of this machine."""
        own = {
            name: value.replace(_HOME, str(self.folder))
            for name, value in variables_of_image().items()
        }
        java = find_java(environ).resolve().parents[1]
        return own | {
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PATH": f"{self.folder / 'bin'}:{environ['PATH']}",
        }


def variables_of_image() -> dict[str, str]:
    """Return the environment variables that the Dockerfile sets."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    return dict(part.split("=", 1) for part in block.replace("\\\n", " ").split())


def wheel(folder: Path, *, quick: bool = False) -> Path:
    """Build the wheel, as the Dockerfile does it; if it may be slow, in a fifth of the time."""
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    environment = {**os.environ, **({"CFLAGS": "-O0"} if quick else {})}
    subprocess.run(
        [*command, "-w", str(folder), str(ROOT)], env=environment, check=True, timeout=600
    )
    (built,) = folder.glob("*.whl")
    return built


def unpack(built: Path, packages: Path) -> None:
    """Unpack a wheel as pip does it: programs may be executed."""
    with zipfile.ZipFile(built) as packed:
        packed.extractall(packages)
        for each in packed.infolist():
            if each.external_attr >> 16 & 0o111:
                (packages / each.filename).chmod(0o755)


def installed(folder: Path, *, quick: bool = False) -> Shipped:
    """Install the wheel, which may be a `quick` one, in a new environment."""
    home = folder / "ikebana"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    unpack(wheel(folder / "wheel", quick=quick), packages)
    # A path file adds folders as they are: the link of the checkout in them is not followed.
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    (home / "conf").mkdir()
    defaults = (ROOT / "deploy" / "spark-defaults.conf").read_text()
    (home / "conf" / "spark-defaults.conf").write_text(defaults.replace(_HOME, str(home)))
    layout = packages / "ikebana" / "processor" / "spark" / "log4j2-json.properties"
    shutil.copy(layout, home / "conf" / "log4j2.properties")
    command = home / "bin" / "ikebana"
    command.write_text(f"#!{home}/bin/python\nfrom ikebana.__main__ import main\n\nmain()\n")
    command.chmod(0o755)
    return Shipped(home)
