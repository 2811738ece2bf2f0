"""Dry run of a configuration: a session over an empty cluster.

Plugins and actions read their arguments themselves, so an argument that none of them reads is
unknown, and no list of arguments has to be maintained. A wrong argument causes a warning, and its
default applies, as in Volcano: configurations in use there contain such errors.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.scheduler.core.framework import opening

IGNORED_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "action allocate": ("predicateErrorCacheEnable",),
    "action backfill": ("predicateErrorCacheEnable",),
    "action reclaim": ("predicateErrorCacheEnable",),
    "action preempt": (
        "predicateErrorCacheEnable",
        "topologyAwarePreemptWorkerNum",
    ),
    "plugin predicates": (
        "predicate.CacheEnable",
        "predicate.DynamicResourceAllocationEnable",
        "volumebinding.bindTimeoutSeconds",
        "dynamicresources.filterTimeoutSeconds",
    ),
}
"""Arguments of Volcano that tune its caches, workers and node sampling. They have no effect here
and cause no warning."""

_AT = datetime(2000, 1, 1, 12, tzinfo=UTC)


class DryRunResult(msgspec.Struct, frozen=True):
    """A usable configuration, with warnings for its author."""

    configuration: configuration.Configuration
    warnings: tuple[config_reader.ConfigMistake, ...] = ()


class TrackedArguments(Mapping[str, Any]):
    """Arguments that note which names were read, present or not, also in nested mappings."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._names: set[str] = set()
        self._inside: dict[str, TrackedArguments] = {}

    def __getitem__(self, name: str) -> Any:
        self._names.add(name)
        value = self._values[name]
        if isinstance(value, Mapping):
            return self._inside.setdefault(name, TrackedArguments(value))
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def unknown(
        self, path: str, meaningless: Collection[str]
    ) -> Iterator[config_reader.ConfigMistake]:
        """Arguments that are present and were not read."""
        known = self._names - set(self._values) or self._names
        for name in self._values:
            if name in self._inside:
                yield from self._inside[name].unknown(f"{path}.{name}", ())
            elif name not in self._names and name not in meaningless:
                problem = f"{name!r} is not a known argument and has no effect"
                yield config_reader.ConfigMistake(
                    f"{path}.{name}", problem, config_reader.spelling_hint(name, known)
                )


def dry_run(
    document: Any,
    find: opening.FindPlugin = plugins.find,
    names: Collection[str] = plugins.NAMES,
) -> DryRunResult:
    """Read a document in Volcano's format and run a session with it.

    ``find``, ``names``: the installed plugins. Raises config_reader.ConfigurationError.
    """
    configured = config_reader.read_configuration(document, actions.NAMES, names)
    watched = _with_tracked_arguments(configured)
    closed = simulate.run(watched, cluster_objects.Cluster(now=_AT), find)
    places = _document_paths(configured, document)
    broken = list(_contradictions(configured, places))
    broken += [
        config_reader.ConfigMistake(
            places[f"plugin {name}"], f"the plugin cannot be used: {why}", "correct or remove it"
        )
        for name, why in closed.failures.items()
    ]
    if broken:
        raise config_reader.ConfigurationError(broken)
    warnings = [_warning(text, places) for text in dict.fromkeys(closed.complaints)]
    return DryRunResult(configured, (*warnings, *_unknown_arguments(watched, places)))


def _contradictions(
    config: configuration.Configuration, places: Mapping[str, str]
) -> Iterator[config_reader.ConfigMistake]:
    for tier in config.tiers:
        options = {each.name: each for each in tier}
        drf = options.get("drf")
        if drf and drf.is_enabled("enableHierarchy") and "proportion" in options:
            yield config_reader.ConfigMistake(
                f"{places['plugin drf']}.enableHierarchy",
                "drf with enableHierarchy and proportion in one tier both order queues",
                "put them in different tiers, or remove one of them",
            )


def _with_tracked_arguments(config: configuration.Configuration) -> configuration.Configuration:
    return msgspec.structs.replace(
        config,
        tiers=tuple(
            tuple(
                msgspec.structs.replace(options, arguments=TrackedArguments(options.arguments))
                for options in tier
            )
            for tier in config.tiers
        ),
        action_arguments={
            name: TrackedArguments(values) for name, values in config.action_arguments.items()
        },
    )


def _unknown_arguments(
    watched: configuration.Configuration, places: Mapping[str, str]
) -> Iterator[config_reader.ConfigMistake]:
    requested = {
        f"plugin {options.name}": options.arguments for tier in watched.tiers for options in tier
    }
    # An action that has arguments but is not in ``actions`` does not run, so it has read none.
    requested |= {
        f"action {name}": values
        for name, values in watched.action_arguments.items()
        if name in watched.actions
    }
    for component, values in requested.items():
        if isinstance(values, TrackedArguments):
            yield from values.unknown(
                f"{places[component]}.arguments", IGNORED_ARGUMENTS.get(component, ())
            )


def _document_paths(config: configuration.Configuration, document: Any) -> dict[str, str]:
    """``plugin gang``, ``action preempt`` -> path in the document."""
    paths = {
        f"plugin {options.name}": f"tiers[{tier}].plugins[{place}]"
        for tier, members in enumerate(config.tiers)
        for place, options in enumerate(members)
    }
    for at, entry in enumerate(document.get("configurations") or ()):
        paths[f"action {entry['name']}"] = f"configurations[{at}]"
    return paths


def _warning(complaint: str, places: Mapping[str, str]) -> config_reader.ConfigMistake:
    """A complaint ``plugin sla: arguments.x: problem`` with its path in the document."""
    component, _, rest = complaint.partition(": ")
    argument, _, problem = rest.partition(": ")
    if component not in places:
        return config_reader.ConfigMistake("tiers", complaint, "correct it")
    place = places[component]
    if problem:
        place = f"{place}.arguments.{argument.removeprefix('arguments.')}"
    return config_reader.ConfigMistake(
        place, problem or rest, "correct it; until then the default applies"
    )
