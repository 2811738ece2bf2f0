"""Job plugins: named extensions that a job requests for its pods and objects.

Admission and the controller both load plugins with this module, so the controller can execute every
plugin that admission accepts.
"""

from collections.abc import Mapping

from stromboli.shared import entry_points
from stromboli.shared.jobspec.job_plugins import (
    env,
    hcclrank,
    mpi,
    pytorch,
    ray,
    ssh,
    svc,
    tensorflow,
)
from stromboli.shared.jobspec.job_plugins.base import Plugin, PluginObject, Pod

__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "Plugin",
    "PluginObject",
    "Plugins",
    "Pod",
    "load",
    "with_required_plugins",
]

ENTRY_POINTS = "stromboli.job_plugins"
"""Entry point group by which another package adds a plugin: name -> class."""
Plugins = Mapping[str, Plugin]
"""Name -> plugin, in the order in which they change a pod."""

BUILT_IN: Plugins = {
    "env": env.Env(),
    "svc": svc.Svc(),
    "ssh": ssh.Ssh(),
    "tensorflow": tensorflow.Tensorflow(),
    "pytorch": pytorch.Pytorch(),
    "mpi": mpi.Mpi(),
    "ray": ray.Ray(),
    "hcclrank": hcclrank.Hcclrank(),
}
"""Plugins that are part of Stromboli. ``hcclrank`` comes after ``pytorch``, since it reads the rank
that ``pytorch`` sets."""
_NEED_SVC = frozenset({"tensorflow", "mpi", "pytorch", "ray"})
"""Plugins whose pods connect to each other by DNS name, and so require ``svc``."""


def with_required_plugins(
    requested: Mapping[str, tuple[str, ...] | None] | None,
) -> dict[str, tuple[str, ...] | None]:
    """The plugins that a job requests, and those that they require."""
    arguments_by_plugin = dict(requested or {})
    if not _NEED_SVC.isdisjoint(arguments_by_plugin):
        arguments_by_plugin.setdefault("svc", ())
    if "mpi" in arguments_by_plugin:
        arguments_by_plugin.setdefault("ssh", ())
    return arguments_by_plugin


def load() -> Plugins:
    """All plugins of this process: the built-in ones, then those of other packages by name.

    Raises TypeError for an entry point that is not a ``Plugin``, and ValueError for one with the
    name of a built-in plugin, since failing at start is better than running without a plugin.
    """
    others: dict[str, Plugin] = {}
    for point in entry_points.of_group(ENTRY_POINTS):
        target = point.load()
        plugin = target() if isinstance(target, type) else target
        if not isinstance(plugin, Plugin):
            raise TypeError(
                f"entry point {point.name} of {ENTRY_POINTS} is {point.value}, which does not "
                "derive from stromboli.shared.jobspec.job_plugins.Plugin"
            )
        if point.name in BUILT_IN:
            raise ValueError(
                f"entry point {point.name} of {ENTRY_POINTS} has the name of a built-in plugin"
            )
        others[point.name] = plugin
    return {**BUILT_IN, **dict(sorted(others.items()))}
