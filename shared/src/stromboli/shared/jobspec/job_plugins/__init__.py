"""Job plugins: what a job requests for its pods, by name.

Admission and the controller load plugins by this module, so every plugin that is admitted can be
executed.
"""

import importlib.metadata
from collections.abc import Mapping

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
"""Plugins that are part of Stromboli. ``hcclrank`` reads what ``pytorch`` wrote."""
_NEED_SVC = frozenset({"tensorflow", "mpi", "pytorch", "ray"})
"""Plugins whose pods find each other by name."""


def with_required_plugins(
    asked: Mapping[str, tuple[str, ...] | None] | None,
) -> dict[str, tuple[str, ...] | None]:
    """The plugins that a job requests, and those that they require."""
    found = dict(asked or {})
    if not _NEED_SVC.isdisjoint(found):
        found.setdefault("svc", ())
    if "mpi" in found:
        found.setdefault("ssh", ())
    return found


def load() -> Plugins:
    """All plugins of this process: the built-in ones, then those of other packages by name.

    Raises TypeError for an entry point that is not a ``Plugin`` and ValueError for one with the
    name of a built-in plugin: failing at start is better than an incomplete service.
    """
    others: dict[str, Plugin] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        made = point.load()
        plugin = made() if isinstance(made, type) else made
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
