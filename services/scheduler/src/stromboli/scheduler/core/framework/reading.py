"""Reading a configuration document: what is unknown or wrong is an error that names its place."""

from collections.abc import Mapping, Sequence
from typing import Any

from stromboli.scheduler.core.framework import configuration

_PLUGIN_KEYS = ("name", "arguments", *configuration.FLAGS)


class ConfigurationError(ValueError):
    """The configuration cannot be used. ``place``: the key's path, as ``tiers[0].plugins[1]``."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(f"{place}: {problem}")


def configured(
    document: Mapping[str, Any], actions: frozenset[str], plugins: frozenset[str]
) -> configuration.Configuration:
    """The configuration in a document of the field's format (spec/scheduling 7).

    ``actions`` and ``plugins`` are the names that exist. Raises ConfigurationError.
    """
    _known(document, ("actions", "tiers", "configurations", "metrics"), "")
    names = tuple(name.strip() for name in _text(document.get("actions", ""), "actions").split(","))
    for name in names:
        if name not in actions:
            raise ConfigurationError(
                "actions", f"{name!r} is not an action; there are {', '.join(sorted(actions))}"
            )
    tiers = tuple(
        _tier(tier, f"tiers[{at}]", plugins)
        for at, tier in enumerate(_list(document.get("tiers"), "tiers"))
    )
    arguments: dict[str, Mapping[str, Any]] = {}
    for at, given in enumerate(_list(document.get("configurations"), "configurations")):
        place = f"configurations[{at}]"
        _known(_mapping(given, place), ("name", "arguments"), place)
        name = _text(given.get("name"), f"{place}.name")
        arguments.setdefault(name, _mapping(given.get("arguments"), f"{place}.arguments"))
    return configuration.Configuration(names, tiers, arguments)


def _tier(
    given: Any, place: str, plugins: frozenset[str]
) -> tuple[configuration.PluginOptions, ...]:
    tier = _mapping(given, place)
    _known(tier, ("plugins",), place)
    return tuple(
        _plugin(plugin, f"{place}.plugins[{at}]", plugins)
        for at, plugin in enumerate(_list(tier.get("plugins"), f"{place}.plugins"))
    )


def _plugin(given: Any, place: str, plugins: frozenset[str]) -> configuration.PluginOptions:
    plugin = _mapping(given, place)
    _known(plugin, _PLUGIN_KEYS, place)
    name = _text(plugin.get("name"), f"{place}.name")
    if name not in plugins:
        raise ConfigurationError(f"{place}.name", f"there is no plugin {name!r}")
    flags = {flag: value for flag, value in plugin.items() if flag in configuration.FLAGS}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"{place}.{flag}", f"{value!r} is not true or false")
    arguments = _mapping(plugin.get("arguments"), f"{place}.arguments")
    return configuration.PluginOptions(name, flags, arguments)


def _known(given: Mapping[str, Any], keys: Sequence[str], place: str) -> None:
    for key in given:
        if key not in keys:
            where = f"{place}.{key}" if place else str(key)
            raise ConfigurationError(where, f"not known here; known are {', '.join(sorted(keys))}")


def _text(given: Any, place: str) -> str:
    if not isinstance(given, str):
        raise ConfigurationError(place, f"{given!r} is not a text")
    return given


def _mapping(given: Any, place: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigurationError(place, f"{given!r} is not a mapping")
    return given


def _list(given: Any, place: str) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(place, f"{given!r} is not a list")
    return given
