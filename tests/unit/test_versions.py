"""What is released together has one version."""

import re
import tomllib
from pathlib import Path

import yaml

from ikebana import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_package_image_and_chart_have_one_version() -> None:
    """That of pyproject.toml; the chart takes the image of its own version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((ROOT / "helm" / "ikebana" / "Chart.yaml").read_text())
    image = re.findall(
        r"^ARG VERSION=(\S+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE
    )
    changes = re.findall(r"^## (\d\S*),", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert {
        "package": __version__,
        "chart": chart["version"],
        "chart's image": chart["appVersion"],
        "image": image,
        "newest entry of the changelog": changes[0],
    } == {
        "package": project["version"],
        "chart": project["version"],
        "chart's image": project["version"],
        "image": [project["version"]],
        "newest entry of the changelog": project["version"],
    }
