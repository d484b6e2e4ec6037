"""The tests of the deployment are marked `deploy`; one cluster serves them all."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from deploy.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is collected from this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.deploy)


@pytest.fixture(scope="session")
def control_plane() -> Path:
    """The control plane, if it has been built: that takes 10 minutes of CPU time."""
    from deploy import tools

    if not tools.control_plane_path().exists():
        pytest.skip("no control plane is built: make deploy-tools")
    return tools.control_plane()


@pytest.fixture(scope="session")
def cluster(control_plane: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Cluster"]:
    """One cluster for the whole run; tests have namespaces of their own."""
    from deploy import cluster

    folder = tmp_path_factory.mktemp("cluster")
    # Pods run as another user, and their folders are below this one.
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    with cluster.running(control_plane, folder) as made:
        yield made
