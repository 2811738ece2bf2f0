"""PodGroups as the controller's patches leave them, for benchmarks without an API server."""

import msgspec

from stromboli.controller.core import commands
from stromboli.shared import decoding
from stromboli.shared.api import scheduling


def patched(group: scheduling.PodGroup | None, command: commands.Patch) -> scheduling.PodGroup:
    """The PodGroup with the status of the patch; other operations change nothing here."""
    assert group is not None, command.key
    for operation in msgspec.json.decode(command.patch):
        if operation["path"] == "/status":
            status = decoding.convert(operation["value"], scheduling.PodGroupStatus)
            group = msgspec.structs.replace(group, status=status)
    return group
