"""Images that engines before Docker 25 saved, rewritten as OCI image layouts."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.dist import oci

LAYERS = (b"the first layer", b"the second one")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def saved(folder: Path, **changed: bytes | None) -> Path:
    """An archive as Docker 20.10 saves it: of three layers, the last is a link to the first."""
    layers = (*LAYERS, LAYERS[0])
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest(it)}" for it in layers]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode()
    manifest = {
        "Config": f"{digest(config)}.json",
        "RepoTags": ["stromboli-monitor:0.1.0"],
        "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"],
    }
    files: dict[str, bytes | None] = {
        "a/layer.tar": LAYERS[0],
        "b/layer.tar": LAYERS[1],
        f"{digest(config)}.json": config,
        "manifest.json": json.dumps([manifest]).encode(),
        "repositories": b"{}",
        **{name.replace("__", "/") + ".tar": content for name, content in changed.items()},
    }
    archive = folder / "saved.tar"
    with tarfile.open(archive, "w") as opened:
        for name, content in files.items():
            if content is not None:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                opened.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("c/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../a/layer.tar"
        opened.addfile(link)
    return archive


def content(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        names = opened.getnames()
        assert len(names) == len(set(names)), "a file is written once"
        return {it.name: opened.extractfile(it).read() for it in opened.getmembers()}  # type: ignore[union-attr]  # files


def blob(of: dict[str, bytes], described: dict[str, Any]) -> bytes:
    found = of["blobs/" + described["digest"].replace(":", "/")]
    assert len(found) == described["size"]
    assert f"sha256:{digest(found)}" == described["digest"]
    return found


def test_the_index_leads_to_every_layer(tmp_path: Path) -> None:
    path = tmp_path / "image.oci.tar"
    oci.rewrite(saved(tmp_path), path)
    files = content(path)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["annotations"] == {
        "io.containerd.image.name": "docker.io/library/stromboli-monitor:0.1.0",
        "org.opencontainers.image.ref.name": "0.1.0",
    }
    manifest = json.loads(blob(files, described))
    assert json.loads(blob(files, manifest["config"]))["architecture"] == "amd64"
    assert [blob(files, it) for it in manifest["layers"]] == [*LAYERS, LAYERS[0]]
    assert oci.is_oci(path)


def test_engines_without_the_oci_layout_find_the_same_blobs(tmp_path: Path) -> None:
    path = tmp_path / "image.oci.tar"
    oci.rewrite(saved(tmp_path), path)
    files = content(path)
    (image,) = json.loads(files["manifest.json"])
    assert image["RepoTags"] == ["stromboli-monitor:0.1.0"]
    assert json.loads(files[image["Config"]])["os"] == "linux"
    assert [files[it] for it in image["Layers"]] == [*LAYERS, LAYERS[0]]


def test_equal_images_give_equal_archives(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    for each in paths:
        oci.rewrite(saved(tmp_path), each)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("b__layer", b"other bytes", "b/layer.tar has digest"),
        ("b__layer", None, "b/layer.tar"),
    ],
    ids=["damaged", "missing"],
)
def test_a_damaged_image_gives_no_archive(
    tmp_path: Path, name: str, changed: bytes | None, message: str
) -> None:
    broken = saved(tmp_path, **{name: changed})
    assert not oci.is_oci(broken)
    with pytest.raises(oci.NotAnImageError, match=message):
        oci.rewrite(broken, tmp_path / "image.oci.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["saved.tar"]
