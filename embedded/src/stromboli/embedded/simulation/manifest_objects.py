"""Reads the objects of a cluster from manifests; errors have the position of the object."""

from collections.abc import Sequence
from datetime import datetime
from typing import TextIO

import msgspec

from stromboli.cli import manifests
from stromboli.cli.errors import CommandError
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.cluster import cluster_objects


def cluster(paths: Sequence[str], stdin: TextIO, now: datetime) -> cluster_objects.Cluster:
    """The objects of these files at this time. Raises CommandError."""
    input_manifests = manifests.read(list(paths), stdin)
    try:
        return simulate.cluster_from_manifests((each.document for each in input_manifests), now)
    except msgspec.ValidationError:
        for each in input_manifests:
            _check(each, now)
        raise


def _check(manifest: manifests.Manifest, now: datetime) -> None:
    """Raise CommandError with the position of an object that cannot be decoded."""
    try:
        simulate.cluster_from_manifests([manifest.document], now)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$.")
        path = path.rstrip("`")
        what = f"{manifest.place(path)}: {manifest.title}"
        raise CommandError(what, f"{path}: {why}" if path else why, "correct it") from None
