"""The scheduler's configuration: actions, tiers of plugins with their flags and arguments.

The file format is Volcano's.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
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
"""Flag -> its value if absent."""


class Arguments:
    """Arguments of a plugin or an action, read by type.

    A value of another type is replaced by the default and recorded in ``complaints``, with
    ``where`` and ``path``.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str = "",
        path: str = "arguments",
        complaints: list[str] | None = None,
    ) -> None:
        self.values = values
        self.complaints: list[str] = [] if complaints is None else complaints
        self._where = where
        self._path = path

    def inside(self, name: str, values: Mapping[str, Any]) -> "Arguments":
        """Arguments that are the value of ``name``. Their complaints are recorded here."""
        return Arguments(values, self._where, f"{self._path}.{name}", self.complaints)

    def nested(self, name: str) -> "Arguments":
        """The arguments in a mapping; none if absent."""
        return self.inside(name, self.mapping(name))

    def integer(self, name: str, default: int, least: int | None = None) -> int:
        """An integer, at least ``least``; a quoted number is a string, and so is not accepted."""
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            return self.record_invalid(name, value, "a whole number", default)
        if least is not None and value < least:
            return self.record_invalid(name, value, f"at least {least}", default)
        return value

    def number(self, name: str, default: float, least: float | None = None) -> float:
        """A number with or without a fraction, at least ``least``."""
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return self.record_invalid(name, value, "a number", default)
        if least is not None and not value >= least:  # also if it is no number (.nan in YAML)
            return self.record_invalid(name, value, f"at least {least:g}", default)
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """A boolean, or one of the strings that mean one (``_BOOLEANS``)."""
        value = self.values.get(name, default)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _BOOLEANS:
            return _BOOLEANS[value]
        return self.record_invalid(name, value, "true or false", default)

    def text(self, name: str, default: str) -> str:
        """A string."""
        value = self.values.get(name, default)
        return (
            value
            if isinstance(value, str)
            else self.record_invalid(name, value, "a string", default)
        )

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A mapping; empty if absent."""
        value = self.values.get(name, {})
        if isinstance(value, Mapping):
            return value
        nothing: Mapping[str, Any] = {}
        return self.record_invalid(name, value, "a mapping", nothing)

    def items(self, name: str) -> Sequence[Any]:
        """A list; empty if absent."""
        value = self.values.get(name, ())
        if isinstance(value, list | tuple):
            return value
        nothing: list[Any] = []
        return self.record_invalid(name, value, "a list", nothing)

    def record_invalid(self, name: str, value: object, wanted: str, default: _T) -> _T:
        """Record that the value has the wrong type. Returns the default."""
        self.complain(name, f"{value!r} is not {wanted}; {default!r} is used")
        return default

    def complain(self, name: str, problem: str) -> None:
        """Record a problem with the value of an argument."""
        self.complaints.append(f"{self._where}{self._path}.{name}: {problem}")


_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class PluginOptions(msgspec.Struct, frozen=True):
    """A plugin in a tier. ``flags``: those that are configured."""

    name: str
    flags: Mapping[str, bool] = {}
    arguments: Mapping[str, Any] = {}

    def is_enabled(self, flag: str) -> bool:
        """Whether the flag is on. The empty flag is always on."""
        return not flag or self.flags.get(flag, FLAGS[flag])

    def typed(self) -> Arguments:
        """The arguments, read by type."""
        return Arguments(self.arguments, f"plugin {self.name}: ")


class Metrics(msgspec.Struct, frozen=True):
    """The Prometheus server for node usage, queried every ``interval_s`` seconds."""

    address: str
    interval_s: float = 30.0
    is_certificate_checked: bool = True


class Configuration(msgspec.Struct, frozen=True, dict=True):
    """Actions in order, plugins by tier, arguments of actions."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginOptions, ...], ...]
    action_arguments: Mapping[str, Mapping[str, Any]] = {}
    default_queue: str = "default"
    metrics: Metrics | None = None

    @functools.cached_property
    def digest(self) -> str:
        """Identifies the configuration in records: 16 hexadecimal digits."""
        encoded = msgspec.json.encode(self, order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:16]

    def action(self, name: str) -> Arguments:
        """The arguments of an action."""
        return Arguments(self.action_arguments.get(name, {}), f"action {name}: ")
