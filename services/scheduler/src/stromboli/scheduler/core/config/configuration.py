"""The scheduler's configuration: actions, tiers of plugins with their flags and arguments.

The file format is the field's (spec/scheduling 7), read from the document that YAML gives.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

FLAGS: Mapping[str, bool] = {
    "enableJobOrder": True,
    "enableHierarchy": False,
    "enableJobReady": True,
    "enableJobPipelined": True,
    "enableTaskOrder": True,
    "enablePreemptable": True,
    "enableReclaimable": True,
    "enablePreemptive": True,
    "enableQueueOrder": True,
    "enabledClusterOrder": False,
    "enablePredicate": True,
    "enableBestNode": True,
    "enableNodeOrder": True,
    "enableTargetJob": True,
    "enableReservedNodes": True,
    "enableJobEnqueued": True,
    "enabledVictim": True,
    "enableJobStarving": True,
    "enabledOverused": True,
    "enabledAllocatable": True,
    "enabledHyperNodeOrder": True,
    "enabledSubJobReady": True,
    "enabledSubJobPipelined": True,
    "enabledSubJobOrder": True,
    "enabledHyperNodeGradient": True,
}
"""Flag -> what an absent one means."""


class Arguments:
    """Arguments of a plugin or an action, read with the type that is wanted.

    A value of another type is not taken: the default stands, and ``complaints`` says so.
    """

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self.values = values
        self.complaints: list[str] = []
        self._where = where

    def integer(self, name: str, default: int) -> int:
        """A whole number; a quoted one is text."""
        value = self.values.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return self.refuse(name, value, "a whole number", default)

    def number(self, name: str, default: float) -> float:
        """A number with or without fraction."""
        value = self.values.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return self.refuse(name, value, "a number", default)

    def boolean(self, name: str, default: bool) -> bool:
        """True or false, or one of the texts that mean it."""
        value = self.values.get(name, default)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _BOOLEANS:
            return _BOOLEANS[value]
        return self.refuse(name, value, "true or false", default)

    def text(self, name: str, default: str) -> str:
        """A text."""
        value = self.values.get(name, default)
        return value if isinstance(value, str) else self.refuse(name, value, "a text", default)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Keys and values; empty if absent."""
        value = self.values.get(name, {})
        if isinstance(value, Mapping):
            return value
        nothing: Mapping[str, Any] = {}
        return self.refuse(name, value, "a mapping", nothing)

    def refuse(self, name: str, value: object, wanted: str, default: _T) -> _T:
        """The default, with a complaint that the value is not what is wanted."""
        self.complaints.append(
            f"{self._where}arguments.{name}: {value!r} is not {wanted}; {default!r} is used"
        )
        return default


_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class PluginOptions(msgspec.Struct, frozen=True):
    """A plugin's place in a tier. ``flags`` holds those that were written."""

    name: str
    flags: Mapping[str, bool] = {}
    arguments: Mapping[str, Any] = {}

    def is_enabled(self, flag: str) -> bool:
        """Whether the flag is on; the empty name stands for what no flag gates."""
        return not flag or self.flags.get(flag, FLAGS[flag])

    def typed(self) -> Arguments:
        """The arguments, to be read with their types."""
        return Arguments(self.arguments, f"plugin {self.name}: ")


class Metrics(msgspec.Struct, frozen=True):
    """Where nodes' load is measured: a Prometheus, asked every ``interval_s`` seconds."""

    address: str
    interval_s: float = 30.0
    is_certificate_checked: bool = True


class Configuration(msgspec.Struct, frozen=True):
    """How to decide: actions in order, plugins by tiers, arguments of actions."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginOptions, ...], ...]
    action_arguments: Mapping[str, Mapping[str, Any]] = {}
    default_queue: str = "default"
    metrics: Metrics | None = None

    @property
    def digest(self) -> str:
        """Names this configuration in records: 16 hexadecimal digits."""
        encoded = msgspec.json.encode(self, order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:16]

    def action(self, name: str) -> Arguments:
        """The arguments of an action."""
        return Arguments(self.action_arguments.get(name, {}), f"action {name}: ")
