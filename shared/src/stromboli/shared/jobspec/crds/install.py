"""Creates missing definitions in a cluster, and never changes existing ones.

    python -m stromboli.shared.jobspec.crds.install

The API server is configured as in every service (``STROM_KUBERNETES_...``). An existing definition
may belong to another system, which continues to use it, so it is never overwritten. If existing
definitions lack parts of ours, the tool prints these and exits with 1.
"""

import asyncio
import os
import sys

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.jobspec import crds
from stromboli.shared.jobspec.crds import definition_diff
from stromboli.shared.runtime import settings


class InstalledDefinition(msgspec.Struct, frozen=True):
    """A definition after the installation. ``lacks``: the parts that it lacks, if it existed
    before.
    """

    name: str
    is_new: bool
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.is_new:
            return f"{self.name}: created"
        if not self.lacks:
            return f"{self.name}: exists and has all required fields"
        lacking = definition_diff.shortened(self.lacks)
        return f"{self.name}: exists and was not changed; it lacks {lacking}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the API server."""

    kubernetes: KubernetesSettings = KubernetesSettings()


async def install_missing(cluster: port.Cluster) -> tuple[InstalledDefinition, ...]:
    """Create missing definitions. Returns the result for each of our definitions. Raises
    ExternalError."""
    installed_definitions = []
    for document in crds.documents():
        name = document["metadata"]["name"]
        try:
            await cluster.create(kinds.DEFINITIONS, "", msgspec.json.encode(document))
            installed_definitions.append(InstalledDefinition(name, is_new=True))
        except errors.AlreadyExistsError:
            other = msgspec.json.decode(await cluster.get(kinds.DEFINITIONS, "", name))
            installed_definitions.append(
                InstalledDefinition(
                    name, is_new=False, lacks=definition_diff.missing_parts(document, other)
                )
            )
    return tuple(installed_definitions)


async def _main() -> None:
    install_settings = settings.load(Settings, "install", os.environ)
    async with KubernetesCluster(install_settings.kubernetes) as cluster:
        installed_definitions = await install_missing(cluster)
    sys.stdout.writelines(f"{definition}\n" for definition in installed_definitions)
    if any(definition.lacks for definition in installed_definitions):
        sys.exit(
            "Fields that a definition lacks are dropped from objects silently. Apply the "
            "definitions in charts/base/crds yourself once the other system works with them."
        )


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except (settings.SettingsError, errors.ExternalError) as error:
        sys.exit(str(error))
