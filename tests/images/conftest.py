"""Images built once for all that is run from them."""

import subprocess

import pytest

from tests.images.support import compose_services, image_build


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, image_build.Image]:
    """All of compose.yaml, built one after another."""
    where = tmp_path_factory.mktemp("images")
    try:
        return {name: image_build.build(name, where / name) for name in compose_services.OURS}
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.cmd}\n{error.stdout}\n{error.stderr}", pytrace=False)
