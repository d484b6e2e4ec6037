"""The image without an engine: the Dockerfile's files over this machine's own root.

Python, its packages and Java are those that run the tests, mounted where the container
can reach them; ikebana itself is the wheel that is built here, and what deploy/ has is
where the Dockerfile puts it.
"""

import os
import shutil
import sys
from pathlib import Path

import pyspark

from deploy.charts import ROOT
from deploy.container import Image
from ikebana.processor.base.machine import find_java
from support.shipped import unpack, variables_of_image, wheel

_HOME = "/opt/ikebana"
_ENTRYPOINT = [f"{_HOME}/entrypoint.sh"]
_WORKDIR = "/var/lib/ikebana"
_FILES = ("entrypoint.sh", "main.py", "healthcheck.py", "clean_executors.py", "decommission.py")
# What the host may not have; it passes nothing on, but what it starts is then number 1.
_TINI = '#!/bin/bash\nwhile [[ "$1" == -* ]]; do shift; done\nexec "$@"\n'


def made(folder: Path) -> Image:
    """Lay the image's own files out in `folder`, and say what lies around them.

    Of an image that has been built, IKEBANA_TEST_ROOT names the mounted root: then
    there is nothing to lay out.
    """
    if root := os.environ.get("IKEBANA_TEST_ROOT"):
        return Image(root, str(folder), {}, variables_of_image(), _ENTRYPOINT, _WORKDIR)
    home = folder / _HOME.lstrip("/")
    (home / "bin").mkdir(parents=True)
    (home / "conf").mkdir()
    for name in _FILES:
        shutil.copy(ROOT / "deploy" / name, home / name)
        (home / name).chmod(0o555)
    shutil.copy(ROOT / "deploy" / "spark-defaults.conf", home / "conf")
    unpack(wheel(folder / "wheel", quick=True), home / "lib")
    layout = home / "lib" / "ikebana" / "processor" / "spark" / "log4j2-json.properties"
    shutil.copy(layout, home / "conf" / "log4j2.properties")
    python = f"/opt/python/bin/{Path(sys.executable).resolve().name}"
    (home / "bin" / "python").symlink_to(python)
    _script(
        home / "bin" / "ikebana",
        f"#!{_HOME}/bin/python\nfrom ikebana.processor.cli.main import main\n\nmain()\n",
    )
    if shutil.which("tini") is None:
        _script(home / "bin" / "tini", _TINI)
    _accounts(folder / "etc")
    for place in ("var/lib/ikebana", "opt/spark/conf"):
        (folder / place).mkdir(parents=True)
    packages = [path for path in sys.path if Path(path).name == "site-packages"]
    java = find_java(os.environ).resolve().parents[1]
    mounts = {f"/opt/packages/{at}": path for at, path in enumerate(packages)}
    mounts |= {"/opt/python": sys.base_prefix, "/opt/java": str(java)}
    spark = Path(pyspark.__file__).parent
    at = next(at for at, path in enumerate(packages) if spark.is_relative_to(path))
    return Image(
        root="/",
        files=str(folder),
        mounts=mounts,
        environment={
            **variables_of_image(),
            "JAVA_HOME": "/opt/java",
            "LD_LIBRARY_PATH": "/opt/python/lib",
            "SPARK_HOME": f"/opt/packages/{at}/pyspark",
            "PYTHONPATH": ":".join(
                [f"{_HOME}/lib", *(place for place in mounts if "packages" in place)]
            ),
        },
        entrypoint=_ENTRYPOINT,
        workdir=_WORKDIR,
    )


def _accounts(folder: Path) -> None:
    """The host's, and the image's user: Hadoop insists that a user has a name."""
    folder.mkdir()
    for name, line in (
        ("passwd", "spark:x:185:185::/var/lib/ikebana:/usr/sbin/nologin\n"),
        ("group", "spark:x:185:\n"),
    ):
        (folder / name).write_text(Path("/etc", name).read_text() + line)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
