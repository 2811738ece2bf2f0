"""What a job plugin is, and helpers for the pods that it shapes.

A plugin is pure: from a job and the plugin's arguments to objects beside the pods and to changes of
the pods themselves, both as data. It never sees a cluster, a clock or chance; the controller makes
the objects, owned by the job, keeps them true while the job is scaled, and removes them when it
ends. So the same job always gives the same bytes, and everything may be done twice.

A plugin of another package derives from ``Plugin`` and is named as an entry point of the group
``stromboli.job_plugins``; docs/job-plugins.md has an example.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from stromboli.shared import keys
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec.job_plugins import arguments as flags

Pod = dict[str, Any]
"""A pod being built, as JSON has it: ``metadata`` and ``spec``."""
Secret = Literal["", "ssh-keys"]


class PluginObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that belongs to the job as a whole.

    ``content``: its fields at top level, such as ``spec`` or ``data``. ``follows``: it is brought
    up to date when ``content`` changes, which for a spec of fixed fields the API server refuses.
    ``secret``: what the controller adds to a Secret's ``data`` in the moment it makes it, so that
    no plan, log or topic ever holds it: ``ssh-keys`` are ``id_rsa``, ``id_rsa.pub`` and
    ``authorized_keys``.
    """

    kind: Kind[Any]
    name: str
    content: dict[str, Any]
    follows: bool = False
    secret: Secret = ""


class Plugin:
    """A plugin that adds nothing: others override what they need. Every task has a name."""

    defaults: ClassVar[Mapping[str, flags.Value]] = {}
    """Argument -> value when it is not given; the value's type is the argument's."""

    def asked(self, arguments: Sequence[str]) -> Mapping[str, Any]:
        """All arguments' values: those given before a fault, else the defaults."""
        return flags.read(arguments, self.defaults).values

    def problem(self, arguments: Sequence[str]) -> str:
        """What is wrong with the arguments, empty if nothing. A job that came past admission runs
        with the values read before the fault."""
        return flags.read(arguments, self.defaults).fault

    def warning(self, arguments: Sequence[str]) -> str:
        """What of the arguments has no effect, empty if all has: they may be of another version."""
        ignored = flags.read(arguments, self.defaults).ignored
        known = ", ".join(sorted(self.defaults)) or "none"
        return f"{', '.join(ignored)} ignored: unknown; known are {known}" if ignored else ""

    def job_problem(self, job: Job, arguments: Sequence[str]) -> str:
        """Why no pod of this job can be made, empty if nothing is in the way."""
        return ""

    def objects(self, job: Job, arguments: Sequence[str]) -> Iterable[PluginObject]:
        """Objects beside the pods."""
        return ()

    def mutate_pod(
        self, pod: Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Add to the pod with this index of a task what it needs."""


def containers(pod: Pod) -> Iterator[dict[str, Any]]:
    """Init containers and containers."""
    yield from pod["spec"].get("initContainers") or ()
    yield from main_containers(pod)


def main_containers(pod: Pod) -> Iterator[dict[str, Any]]:
    """Containers without init containers."""
    yield from pod["spec"].get("containers") or ()


def add_env(container: dict[str, Any], variables: Sequence[dict[str, Any]]) -> None:
    """Append variables; the last of a name counts."""
    container["env"] = [*(container.get("env") or ()), *variables]


def variable(name: str, value: object) -> dict[str, str]:
    """A variable of a container."""
    return {"name": name, "value": str(value)}


def open_port(container: dict[str, Any], name: str, port: int) -> None:
    """Name a port of the container, unless the number stands there already."""
    found = container.get("ports") or ()
    if all(it.get("containerPort") != port for it in found):
        container["ports"] = [*found, {"name": name, "containerPort": port}]


def mount(container: dict[str, Any], volume: str, path: str, **more: str) -> None:
    """Mount a volume of the pod."""
    mounted = {"name": volume, "mountPath": path, **more}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mounted]


def add_volume(pod: Pod, volume: dict[str, Any]) -> None:
    """Append a volume to the pod."""
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]


def task_named(job: Job, name: str) -> TaskSpec | None:
    """The task of this name."""
    return next((task for task in job.spec.tasks if task.name == name), None)


def pods_of(job: Job) -> dict[str, str]:
    """Labels that all pods of the job have, and no others."""
    return {keys.JOB_NAME: job.metadata.name, keys.JOB_NAMESPACE: job.metadata.namespace}
