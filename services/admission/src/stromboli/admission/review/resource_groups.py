"""The operator's file of resource groups: read again when it changes.

If the file is invalid, the previous groups stay in force, and the error is logged: half a
configuration would send pods to the wrong nodes.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from stromboli.shared import decoding
from stromboli.shared.jobspec.validation.pods import ResourceGroups
from stromboli.shared.runtime import telemetry


class ResourceGroupsFile:
    """The groups in a YAML file. An empty path means there are none."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._stamp: tuple[int, int] | None = None
        self._groups = ResourceGroups()
        self._reported = ""

    def current(self) -> ResourceGroups:
        """The groups in force. Costs a ``stat``; reads the file when it has changed."""
        if self._path is None:
            return self._groups
        try:
            file_stat = self._path.stat()
            stamp = (file_stat.st_mtime_ns, file_stat.st_size)
            if stamp != self._stamp:
                self._stamp = stamp
                self._groups = read(self._path.read_text(encoding="utf-8"))
            self._reported = ""
        except (OSError, ValueError) as error:
            if str(error) != self._reported:  # once, not for each pod that is created
                self._reported = str(error)
                telemetry.log.error(
                    "resource groups not read", file=str(self._path), error=str(error)
                )
        return self._groups


def read(text: str) -> ResourceGroups:
    """The groups in a YAML text. Raises ValueError that names the error and its line."""
    try:
        document: Any = yaml.safe_load(text) or {}
        groups = decoding.convert(document, ResourceGroups)
        for group in groups.resource_groups:
            if group.affinity:
                json.loads(group.affinity)
    except (yaml.YAMLError, msgspec.ValidationError, json.JSONDecodeError) as error:
        raise ValueError(f"resource groups: {error}") from None
    return groups
