"""Reads a configuration document and reports every mistake with its path.

The format is Volcano's, read more strictly: an unknown key, plugin, action or flag is a mistake and
is never ignored. Plugins check their own arguments (``config_dry_run``).
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from stromboli.scheduler.core.config import configuration, durations

DEFAULT: Mapping[str, Any] = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang", "enablePreemptable": False},
                {"name": "conformance"},
            ]
        },
        {
            "plugins": [
                {"name": "overcommit"},
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "proportion"},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}
"""The configuration if none is given: the one that Volcano's chart installs. The fallback in
Volcano's binary differs (it has no binpack).
"""

_PLUGIN_KEYS = ("name", "arguments", *configuration.FLAGS)
_METRICS_KEYS = ("type", "address", "interval", "tls.insecureSkipVerify")
_METRICS_TYPES_LATER = ("prometheus_adaptor", "elasticsearch")


class ConfigMistake(msgspec.Struct, frozen=True):
    """A mistake. ``place``: path of the key, such as ``tiers[0].plugins[1].name``."""

    place: str
    problem: str
    next_step: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.next_step}"


class ConfigurationError(ValueError):
    """The configuration cannot be used. ``mistakes``: all reasons."""

    def __init__(self, mistakes: Sequence[ConfigMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    @property
    def place(self) -> str:
        """The path of the first mistake."""
        return self.mistakes[0].place


def read_configuration(
    document: Any, actions: Collection[str], plugins: Collection[str]
) -> configuration.Configuration:
    """The configuration in a document of Volcano's format.

    ``actions`` and ``plugins``: the names that exist. Raises ConfigurationError with every mistake.
    """
    reader = _Reader(actions, plugins)
    config = reader.read(document)
    if reader.mistakes:
        raise ConfigurationError(reader.mistakes)
    return config


class _Reader:
    """Reads one document. A mistake is recorded, and the value is treated as absent."""

    def __init__(self, actions: Collection[str], plugins: Collection[str]) -> None:
        self.mistakes: list[ConfigMistake] = []
        self._actions = actions
        self._plugins = plugins
        self._seen: dict[str, str] = {}
        """Plugin -> the path where it is configured."""

    def read(self, document: Any) -> configuration.Configuration:
        root = self._mapping(document, "")
        self._known(root, ("actions", "tiers", "configurations", "metrics"), "")
        return configuration.Configuration(
            actions=self._read_actions(root.get("actions")),
            tiers=tuple(
                self._tier(tier, f"tiers[{at}]")
                for at, tier in enumerate(self._list(root.get("tiers"), "tiers"))
            ),
            action_arguments=self._action_arguments(root.get("configurations")),
            metrics=self._metrics(root.get("metrics")),
        )

    def _read_actions(self, value: Any) -> tuple[str, ...]:
        if value is None:
            self._note("actions", "it is missing", 'write: actions: "enqueue, allocate, backfill"')
            return ()
        names: list[str] = []
        for name in (part.strip() for part in self._text(value, "actions").split(",")):
            if name not in self._actions:
                self._unknown("actions", name, "action", self._actions)
            elif name in names:
                self._note("actions", f"{name} is configured twice", "keep one of them")
            names.append(name)
        return tuple(names)

    def _tier(self, value: Any, place: str) -> tuple[configuration.PluginOptions, ...]:
        tier = self._mapping(value, place)
        self._known(tier, ("plugins",), place)
        return tuple(
            self._plugin(plugin, f"{place}.plugins[{at}]")
            for at, plugin in enumerate(self._list(tier.get("plugins"), f"{place}.plugins"))
        )

    def _plugin(self, raw_plugin: Any, place: str) -> configuration.PluginOptions:
        plugin = self._mapping(raw_plugin, place)
        self._known(plugin, _PLUGIN_KEYS, place)
        name = self._text(plugin.get("name"), f"{place}.name")
        if name and name not in self._plugins:
            self._unknown(f"{place}.name", name, "plugin", self._plugins)
        elif name in self._seen:
            first = self._seen[name]
            self._note(
                f"{place}.name", f"{name} is configured twice, first at {first}", "keep one of them"
            )
        self._seen.setdefault(name, place)
        flags = {flag: value for flag, value in plugin.items() if flag in configuration.FLAGS}
        for flag, value in flags.items():
            if not isinstance(value, bool):
                self._note(
                    f"{place}.{flag}", f"{value!r} is neither true nor false", "write true or false"
                )
        arguments = self._mapping(plugin.get("arguments"), f"{place}.arguments")
        return configuration.PluginOptions(name, flags, arguments)

    def _action_arguments(self, value: Any) -> dict[str, Mapping[str, Any]]:
        arguments_by_action: dict[str, Mapping[str, Any]] = {}
        for at, each in enumerate(self._list(value, "configurations")):
            place = f"configurations[{at}]"
            entry = self._mapping(each, place)
            self._known(entry, ("name", "arguments"), place)
            name = self._text(entry.get("name"), f"{place}.name")
            if name and name not in self._actions:
                self._unknown(f"{place}.name", name, "action", self._actions)
            elif name in arguments_by_action:
                self._note(f"{place}.name", f"{name} is configured twice", "keep one of them")
            arguments_by_action[name] = self._mapping(entry.get("arguments"), f"{place}.arguments")
        return arguments_by_action

    def _metrics(self, value: Any) -> configuration.Metrics | None:
        entry = self._mapping(value, "metrics")
        if not entry:
            return None
        self._known(entry, _METRICS_KEYS, "metrics")
        kind = self._text(entry.get("type"), "metrics.type")
        if kind in _METRICS_TYPES_LATER:
            self._note("metrics.type", f"{kind} is not supported", "write: type: prometheus")
        elif kind and kind != "prometheus":
            self._unknown("metrics.type", kind, "source of measurements", ("prometheus",))
        address = self._text(entry.get("address"), "metrics.address")
        if address and not address.startswith(("http://", "https://")):
            self._note(
                "metrics.address", f"{address!r} is not a URL", "write it with http:// or https://"
            )
        text = self._text(entry.get("interval", "30s"), "metrics.interval")
        seconds = 30.0
        try:
            seconds = durations.duration(text).total_seconds()
        except ValueError as error:
            self._note("metrics.interval", str(error), "write a duration such as 30s")
        else:
            if seconds <= 0:
                self._note(
                    "metrics.interval", f"{text} is not positive", "write a duration such as 30s"
                )
        is_insecure = entry.get("tls.insecureSkipVerify", False)
        if is_insecure not in (True, False, "true", "false"):
            self._note(
                "metrics.tls.insecureSkipVerify",
                f"{is_insecure!r} is neither true nor false",
                "write true or false",
            )
        return configuration.Metrics(
            address=address.rstrip("/"),
            interval_s=seconds,
            is_certificate_checked=is_insecure not in (True, "true"),
        )

    # Types of values --------------------------------------------------------------------------

    def _known(self, mapping: Mapping[str, Any], keys: Sequence[str], place: str) -> None:
        for key in mapping:
            if key not in keys:
                self._unknown(f"{place}.{key}" if place else str(key), str(key), "key", keys)

    def _text(self, value: Any, place: str) -> str:
        if isinstance(value, str) and value:
            return value
        problem = "it is missing" if value in (None, "") else f"{value!r} is not a string"
        self._note(place, problem, "write a string")
        return ""

    def _mapping(self, raw_value: Any, place: str) -> Mapping[str, Any]:
        if raw_value is None:
            return {}
        if isinstance(raw_value, Mapping):
            return raw_value
        self._note(place or "the document", f"{raw_value!r} is not a mapping", "write key: value")
        return {}

    def _list(self, raw_value: Any, place: str) -> Sequence[Any]:
        if raw_value is None:
            return ()
        if isinstance(raw_value, Sequence) and not isinstance(raw_value, str):
            return raw_value
        self._note(place, f"{raw_value!r} is not a list", "write each item after '- '")
        return ()

    def _unknown(self, place: str, name: str, what: str, known: Collection[str]) -> None:
        self._note(place, f"{name!r} is not a known {what}", spelling_hint(name, known))

    def _note(self, place: str, problem: str, next_step: str) -> None:
        self.mistakes.append(ConfigMistake(place, problem, next_step))


def spelling_hint(name: str, known: Collection[str]) -> str:
    """A hint for an error message: the most similar known name, or all known names."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(sorted(known))}" if known else "none is known: remove it"
