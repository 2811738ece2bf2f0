"""Warns at the start about installed CRDs that lack fields of ours.

They belong to another system or an older version and are never overwritten, but the API server
drops the missing fields from objects.
"""

import functools

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.jobspec import crds
from stromboli.shared.jobspec.crds import definition_diff
from stromboli.shared.runtime import runtime

FACT = "definitions"


async def check_definitions(cluster: port.Cluster, health: runtime.Health) -> None:
    """Check once. A missing definition is reported by the reflector of its kind."""
    lines = []
    for ours in crds.documents():
        name = ours["metadata"]["name"]
        try:
            read = functools.partial(cluster.get, kinds.DEFINITIONS, "", name)
            raw = await runtime.retry_until_available(read, "cluster", health)
        except (errors.NotFoundError, errors.UnsupportedError):
            continue
        except errors.PermanentError as error:
            lines.append(f"{name}: permission to read it is missing: {error.reason}")
            continue
        try:
            lacks = definition_diff.missing_parts(ours, msgspec.json.decode(raw))
        except (msgspec.DecodeError, TypeError, ValueError, KeyError, AttributeError) as error:
            lines.append(f"{name} cannot be read: {type(error).__name__}: {error}")
            continue
        if lacks:
            lines.append(f"{name} in the cluster lacks {definition_diff.shortened(lacks)}")
    health.warn(FACT, "; ".join(lines) or None)
