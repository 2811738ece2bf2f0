"""Rewrites an archive that ``docker save`` wrote before Docker 25 as an OCI image layout in a tar
archive (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).

The result also contains Docker's ``manifest.json``, like the archives of Docker 25 and later, so
engines of all versions can load it. Equal images give equal bytes.
"""

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
_BLOBS = "blobs/sha256/"
_OCI = "application/vnd.oci.image."


class NotAnImageError(Exception):
    """The archive is not one that ``docker save`` wrote for one image."""


class _Blob:
    """A reader that computes the digest of what is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        read = self._source.read(size)
        self._sha256.update(read)
        return read

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()


def is_oci(archive: Path) -> bool:
    """Whether the archive has an OCI image layout already."""
    with tarfile.open(archive) as opened:
        return "oci-layout" in opened.getnames()


def rewrite(saved: Path, archive: Path) -> None:
    """Write ``archive`` from ``saved``, an archive of one image.

    Raises NotAnImageError if a file is missing in ``saved`` or differs from its digest; then there
    is no archive. Reads each layer once; memory does not grow with the image.
    """
    written = archive.with_name(archive.name + ".part")
    try:
        with tarfile.open(saved) as source, tarfile.open(written, "w") as target:
            try:
                _rewrite(source, target)
            except (KeyError, ValueError, IndexError, tarfile.TarError) as error:
                raise NotAnImageError(f"{saved.name}: {error}") from error
        written.replace(archive)
    finally:
        written.unlink(missing_ok=True)


def _rewrite(source: tarfile.TarFile, target: tarfile.TarFile) -> None:
    (image,) = json.loads(_read(source, "manifest.json"))
    config = _read(source, image["Config"])
    diff_ids = [_sha256(it) for it in json.loads(config)["rootfs"]["diff_ids"]]
    layers = []
    for diff_id, layer in zip(diff_ids, image["Layers"], strict=True):
        size = _copy(source, layer, target, diff_id)
        layers.append(_descriptor("layer.v1.tar", diff_id, size))
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}manifest.v1+json",
            "config": _add_blob(target, "config.v1+json", config),
            "layers": layers,
        }
    )
    described = _add_blob(target, "manifest.v1+json", manifest)
    # containerd names an imported image by the first annotation; others read the tag from the
    # second one.
    (name, *_) = image["RepoTags"]
    described["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{name}",
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}index.v1+json",
        "manifests": [described],
    }
    for_docker = {
        "Config": _BLOBS + hashlib.sha256(config).hexdigest(),
        "RepoTags": image["RepoTags"],
        "Layers": [_BLOBS + it for it in diff_ids],
    }
    _add(target, "index.json", _json(index))
    _add(target, "manifest.json", _json([for_docker]))
    _add(target, "oci-layout", LAYOUT)


def _sha256(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256":
        raise ValueError(f"{digest}: only sha256 is supported")
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": _OCI + media_type, "digest": f"sha256:{digest}", "size": size}


@contextlib.contextmanager
def _opened(source: tarfile.TarFile, name: str) -> Iterator[tuple[IO[bytes], int]]:
    # A layer that an image has twice is a link to the first one, which tarfile follows; the size
    # is that of the file.
    file = source.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file")
    with file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        yield file, size


def _read(source: tarfile.TarFile, name: str) -> bytes:
    with _opened(source, name) as (file, _):
        return file.read()


def _copy(source: tarfile.TarFile, name: str, target: tarfile.TarFile, digest: str) -> int:
    path = _BLOBS + digest
    with _opened(source, name) as (file, size):
        if path in target.getnames():
            return size
        blob = _Blob(file)
        target.addfile(_information(path, size), blob)
    if blob.digest != digest:
        raise ValueError(f"{name} has digest {blob.digest}, not {digest}")
    return size


def _add_blob(target: tarfile.TarFile, media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    _add(target, _BLOBS + digest, content)
    return _descriptor(media_type, digest, len(content))


def _add(target: tarfile.TarFile, name: str, content: bytes) -> None:
    target.addfile(_information(name, len(content)), io.BytesIO(content))


def _information(name: str, size: int) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    return made
