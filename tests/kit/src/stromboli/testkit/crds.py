"""Our custom resources on a real API server."""

import asyncio
import contextlib
from typing import Any

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.jobspec import crds
from stromboli.shared.runtime import runtime

ESTABLISH_TIMEOUT_S = 120.0
"""Seconds until all CRDs are served; they take about one."""


class Names(meta.Part, frozen=True, kw_only=True):
    """The names of a definition's kind."""

    kind: str = ""
    plural: str = ""


class Version(meta.Part, frozen=True, kw_only=True):
    """A version in which a definition's objects are served."""

    name: str = ""


class Spec(meta.Part, frozen=True, kw_only=True):
    """The part of a CRD that locates its objects."""

    group: str = ""
    names: Names = Names()
    versions: tuple[Version, ...] = ()
    scope: str = "Namespaced"


class Status(meta.Part, frozen=True, kw_only=True):
    """The conditions that the API server sets on a definition."""

    conditions: tuple[core.Condition, ...] = ()


class Definition(meta.Object, frozen=True, kw_only=True):
    """A CustomResourceDefinition."""

    spec: Spec = Spec()
    status: Status = Status()

    def condition(self, wanted: str) -> core.Condition | None:
        """The condition of this type."""
        return next(
            (condition for condition in self.status.conditions if condition.type == wanted), None
        )

    @property
    def objects(self) -> kinds.Kind[meta.Object]:
        """The kind that the definition adds."""
        return kinds.Kind(
            self.spec.group,
            self.spec.versions[0].name,
            self.spec.names.kind,
            self.spec.names.plural,
            meta.Object,
            namespaced=self.spec.scope == "Namespaced",
        )


DEFINITIONS = kinds.Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    Definition,
    namespaced=False,
)


async def apply_crds(cluster: port.Cluster) -> tuple[Definition, ...]:
    """Create or update our definitions; returns once objects of each can be written.

    Raises ValueError when the server finds a schema not structural or a name taken, ExternalError
    when it rejects a definition.
    """
    names = [await _apply(cluster, document) for document in crds.documents()]
    async with asyncio.timeout(ESTABLISH_TIMEOUT_S):
        return tuple([await _until_served(cluster, name) for name in names])


async def _apply(cluster: port.Cluster, document: dict[str, Any]) -> str:
    name: str = document["metadata"]["name"]
    body = msgspec.json.encode(document)
    try:
        await cluster.create(DEFINITIONS, "", body)
    except errors.AlreadyExistsError:
        await cluster.patch(DEFINITIONS, "", name, body, patch_type="merge")
    return name


async def _until_served(cluster: port.Cluster, name: str) -> Definition:
    """Wait until the definition is established and, a little later, its collection is served;
    return it."""
    pauses = runtime.Backoff()
    while True:
        definition = DEFINITIONS.decode(await cluster.get(DEFINITIONS, "", name))
        _check(definition)
        established = definition.condition("Established")
        if established is not None and established.status == "True":
            with contextlib.suppress(errors.NotFoundError, errors.TransientError):
                await cluster.list(definition.objects)
                return definition
        await asyncio.sleep(pauses.next_s())


def _check(definition: Definition) -> None:
    not_structural = definition.condition("NonStructuralSchema")
    if not_structural is not None and not_structural.status == "True":
        raise ValueError(f"{definition.metadata.name}: {not_structural.message}")
    accepted = definition.condition("NamesAccepted")
    if accepted is not None and accepted.status == "False":
        raise ValueError(f"{definition.metadata.name}: {accepted.message}")
