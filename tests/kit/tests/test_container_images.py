"""Images made without a registry."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from stromboli.testkit.parts import container_images


def tar_of(folder: Path, name: str, content: str) -> Path:
    """A tar with one file."""
    source, tar = folder / name, folder / f"{name}.tar"
    source.write_text(content)
    with tarfile.open(tar, "w") as layer:
        layer.add(source, name)
    return tar


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with an image of one tar, and one of that tar and another one."""
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF")
    root, more = tar_of(tmp_path, "root", "python"), tar_of(tmp_path, "more", "wheels")
    archive = tmp_path / "images.tar"
    container_images.write_archive(program, archive, {"one": root, "two": (root, more)})
    return archive


def blob(archive: tarfile.TarFile, digest: str) -> Any:
    file = archive.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
    assert file is not None
    return json.load(file)


def test_an_image_of_several_tars_has_a_layer_for_each_in_their_order(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        index = json.load(opened.extractfile("index.json"))  # type: ignore[arg-type]  # it is there
        manifests = {
            it["annotations"]["io.containerd.image.name"]: blob(opened, it["digest"])
            for it in index["manifests"]
        }
        one, two = (
            [layer["digest"] for layer in manifests[name]["layers"]] for name in ("one", "two")
        )
        assert two[0] == one[0] != two[1]
        configuration = blob(opened, manifests["two"]["config"]["digest"])
    assert configuration["rootfs"]["diff_ids"] == two


def test_a_tar_of_two_images_is_stored_once(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    assert len(names) == len(set(names))
