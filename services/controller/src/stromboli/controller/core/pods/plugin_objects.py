"""The objects of a job's plugins, the plugins' changes of its pods, and the record of both in the
job's status.

``status.controlledResources`` has ``plugin-<name>`` while the plugin's objects exist, as in
Volcano, and in addition a digest of their inputs, to detect when they must be updated.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.api.batch import Job
from stromboli.shared.jobspec import job_plugins

PLUGIN = "plugin-"
"""Prefix of the keys of plugins in ``controlledResources``: a plugin has a key while its objects
exist."""
DIGEST = keys.PREFIX + "digest-"
"""Prefix of further keys of ``controlledResources``, whose values are digests of the inputs of a
plugin's objects."""


class PluginFailedError(Exception):
    """A plugin of another package raised an exception. It is recorded on the job and affects no
    other job."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"plugin {name} failed: {type(error).__name__}: {error}")


def blockers(job: Job, plugins: job_plugins.Plugins) -> Iterator[str]:
    """Why no pod of the job can be created."""
    requested = job_plugins.with_required_plugins(job.spec.plugins)
    for name in sorted(requested.keys() - plugins.keys()):
        known = ", ".join(sorted(plugins))
        yield f"plugin {name} is unknown, so no pod is created; known are {known}"
    named = _named(job)
    for name, plugin, arguments in _chosen(job, plugins):
        try:
            problem = plugin.job_problem(named, arguments)
        except Exception as error:
            problem = str(PluginFailedError(name, error))
        if problem:
            yield f"plugin {name}: {problem}; no pod is created"
    try:
        _additions(job, plugins)
    except PluginFailedError as error:
        yield f"{error}; no pod is created"


def problems(job: Job, plugins: job_plugins.Plugins) -> Iterator[str]:
    """Errors in plugin arguments that do not prevent the creation of pods."""
    for name, plugin, arguments in _chosen(job, plugins):
        for message in filter(None, (plugin.problem(arguments), plugin.warning(arguments))):
            yield f"plugin {name}: {message}"


def customize(
    pod: job_plugins.Pod, job: Job, member: tasks.Member, plugins: job_plugins.Plugins
) -> None:
    """Let every plugin of the job change a pod that is being built, in the order of ``plugins``.
    Raises PluginFailedError."""
    named = _named(job)
    for name, plugin, arguments in _chosen(job, plugins):
        try:
            plugin.mutate_pod(pod, named, member.task, member.index, arguments)
        except Exception as error:
            raise PluginFailedError(name, error) from error


def creations(job: Job, plugins: job_plugins.Plugins) -> Iterator[commands.Create]:
    """Create the plugins' objects, and update the objects that depend on the job. Requires a job
    without blockers."""
    for _, addition in _additions(job, plugins):
        yield commands.Create(
            kind=addition.kind,
            namespace=job.metadata.namespace,
            name=addition.name,
            body=manifests.body(addition.kind, job, addition.name, **addition.content),
            owner_uid=job.metadata.uid,
            update=manifests.encode(addition.content) if addition.follows else b"",
            secret=addition.secret,
        )


def removals(job: Job, plugins: job_plugins.Plugins) -> Iterator[commands.Delete]:
    """Delete the objects of the plugins that the status lists. If a plugin fails, no object is
    deleted here; all are deleted with the job."""
    try:
        additions = _additions(job, plugins)
    except PluginFailedError:
        return
    for name, addition in additions:
        if PLUGIN + name in job.status.controlled_resources:
            yield commands.Delete(
                kind=addition.kind,
                namespace=job.metadata.namespace,
                name=addition.name,
                owner_uid=job.metadata.uid,
            )


def controlled(job: Job, plugins: job_plugins.Plugins) -> dict[str, str]:
    """The entries of ``controlledResources`` once the plugins' objects exist."""
    resources = others_controlled(job) | {
        PLUGIN + name: name for name, _, _ in _chosen(job, plugins)
    }
    return resources | _made(job, plugins).digests


def others_controlled(job: Job) -> dict[str, str]:
    """The entries of ``controlledResources`` that do not belong to a plugin."""
    return {
        key: value
        for key, value in job.status.controlled_resources.items()
        if not key.startswith((PLUGIN, DIGEST))
    }


def _chosen(
    job: Job, plugins: job_plugins.Plugins
) -> Iterator[tuple[str, job_plugins.Plugin, tuple[str, ...]]]:
    """The job's plugins that are known, in the order of ``plugins``, with their arguments."""
    requested = job_plugins.with_required_plugins(job.spec.plugins)
    for name, plugin in plugins.items():
        if name in requested:
            yield name, plugin, requested[name] or ()


class _Source(msgspec.Struct, frozen=True):
    """The inputs from which a plugin's objects may be derived."""

    spec: batch.JobSpec
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    version: int
    retries: int
    plugins: tuple[tuple[str, job_plugins.Plugin], ...]


class _PluginObjects(msgspec.Struct, frozen=True):
    """A job's plugin objects, each with its plugin, and the digests of the objects that are updated
    with the job."""

    source: _Source
    additions: tuple[tuple[str, job_plugins.PluginObject], ...]
    digests: dict[str, str]


_LATEST: OrderedDict[str, _PluginObjects] = OrderedDict()
_MOST_LATEST = 64
"""Number of jobs whose objects are cached: host lists are as long as the job, and each reconcile
needs them.
"""


def _additions(
    job: Job, plugins: job_plugins.Plugins
) -> tuple[tuple[str, job_plugins.PluginObject], ...]:
    return _made(job, plugins).additions


def _made(job: Job, plugins: job_plugins.Plugins) -> _PluginObjects:
    source = _Source(
        spec=job.spec,
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
        version=job.status.version,
        retries=job.status.retry_count,
        plugins=tuple(plugins.items()),
    )
    key = f"{job.metadata.key}/{job.metadata.uid}"
    known = _LATEST.pop(key, None)
    if known is None or known.source != source:
        known = _PluginObjects(source, tuple(_built(job, plugins)), {})
        known.digests.update(_digests(known.additions))
    _LATEST[key] = known
    if len(_LATEST) > _MOST_LATEST:
        _LATEST.popitem(last=False)
    return known


def _built(
    job: Job, plugins: job_plugins.Plugins
) -> Iterator[tuple[str, job_plugins.PluginObject]]:
    named = _named(job)
    for name, plugin, arguments in _chosen(job, plugins):
        try:
            plugin_objects = tuple(plugin.objects(named, arguments))
        except Exception as error:
            raise PluginFailedError(name, error) from error
        for addition in plugin_objects:
            yield name, addition


def _digests(additions: Iterable[tuple[str, job_plugins.PluginObject]]) -> dict[str, str]:
    following: dict[str, list[object]] = {}
    for name, addition in additions:
        if addition.follows:
            following.setdefault(name, []).append(addition.content)
    return {
        DIGEST + name: hashlib.sha256(manifests.encode(contents)).hexdigest()[:12]
        for name, contents in following.items()
    }


def _named(job: Job) -> Job:
    """The job with a name for each task. Admission sets these names, and plugins rely on them."""
    if all(task.name for task in job.spec.tasks):
        return job
    spec = msgspec.structs.replace(job.spec, tasks=tasks.specs(job))
    return msgspec.structs.replace(job, spec=spec)
