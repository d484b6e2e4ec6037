"""What lies beside the chart is fit for use: README, image, wheel, compose file."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest
import yaml

from deploy import tools
from deploy.charts import CHART, ROOT, tool
from ikebana.processor.base.machine import find_java
from support.shipped import wheel

DEPLOY = ROOT / "deploy"


def test_the_readme_is_fresh(tmp_path: Path) -> None:
    """The chart's README is what its values and their comments make of the template."""
    done = subprocess.run(
        [tool(tools.helm_docs), "--chart-search-root", ROOT / "helm", "--dry-run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (CHART / "README.md").read_text().strip()
    assert "docs/kubernetes.md" in done.stdout


def test_hadolint_finds_nothing() -> None:
    """Nor is a rule switched off but for that of pinning Debian's own packages."""
    dockerfile = DEPLOY / "Dockerfile"
    done = subprocess.run(
        [tool(lambda: tools.on_path("hadolint")), dockerfile],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    ignored = [line for line in dockerfile.read_text().splitlines() if "hadolint ignore" in line]
    assert set(ignored) == {"# hadolint ignore=DL3008"}


def test_the_wheel_has_the_real_files(tmp_path: Path) -> None:
    """The three folders that src/ikebana links to are in the wheel, as files."""
    names = set(zipfile.ZipFile(wheel(tmp_path, quick=True)).namelist())
    wanted = {
        f"ikebana/{path.relative_to(ROOT)}"
        for folder in ("processor", "arrangements", "codecs", "compiled", "serving", "delivering")
        for suffix in ("*.py", "*.pyx", "*.properties", "page/*")
        for path in (ROOT / folder).rglob(suffix)
    }
    assert wanted - names == set()
    assert "ikebana/py.typed" in names


def test_the_image_takes_in_what_it_needs_and_no_more() -> None:
    """What the Dockerfile copies is let through by the ignore file."""
    allowed = {
        line.removeprefix("!")
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        part.split("/")[0]
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
        for part in line.split()[1:-1]
    }
    assert copied == allowed


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(script: Path) -> None:
    """Bash can read them."""
    subprocess.run(["bash", "-n", script], check=True)


def test_compose_names_what_is_there() -> None:
    """The compose file is YAML, and the files that it mounts and builds exist."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    own = services["ikebana"]
    assert (DEPLOY / own["build"]["context"] / own["build"]["dockerfile"]).exists()
    for mount in own["volumes"]:
        source = mount.split(":")[0]
        assert not source.startswith(".") or (DEPLOY / source).exists()
    assert own["read_only"] is True


def test_jvm_log_lines_are_json(tmp_path: Path) -> None:
    """The JVM's lines have the fields of ikebana's own, and each is one object."""
    jars = Path(pyspark.__file__).parent / "jars"
    layout = ROOT / "processor" / "spark" / "log4j2-json.properties"
    source = tmp_path / "L.java"
    source.write_text(
        "class L { public static void main(String[] a) {"
        ' org.apache.logging.log4j.LogManager.getLogger("a.b").warn("it \\"is\\"\\n so",'
        ' new RuntimeException("why")); } }'
    )
    java = find_java(os.environ)
    done = subprocess.run(
        [java, "-cp", f"{jars}/*", f"-Dlog4j2.configurationFile={layout}", source],
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("WARN", "a.b")
    assert told["message"] == 'it "is"\n so'
    assert "RuntimeException: why" in told["exception"]
    assert told["time"].endswith("Z")
