"""The interface of a job plugin, and helpers to change pods.

A plugin is pure: from a job and the plugin's arguments it computes additional objects and changes
of the pods, both as data. It has no access to the cluster, a clock or random numbers. The
controller creates the objects, owned by the job, updates them while the job is scaled, and deletes
them when it ends. So the same job always gives the same bytes, and every step may be repeated.

A plugin of another package derives from ``Plugin`` and is registered as an entry point of the group
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
"""A pod under construction, as JSON: ``metadata`` and ``spec``."""
Secret = Literal["", "ssh-keys"]
LONGEST_SERVICE_NAME = 63


class PluginObject(msgspec.Struct, frozen=True, kw_only=True):
    """An additional object that belongs to the whole job.

    ``content``: its top-level fields, such as ``spec`` or ``data``. ``follows``: whether it is
    updated when ``content`` changes; the API server rejects changes of immutable specs. ``secret``:
    values that the controller adds to a Secret's ``data`` when it creates it, so that no plan, log
    or topic contains them: ``ssh-keys`` are ``id_rsa``, ``id_rsa.pub`` and ``authorized_keys``.
    """

    kind: Kind[Any]
    name: str
    content: dict[str, Any]
    follows: bool = False
    secret: Secret = ""


class Plugin:
    """The base class of plugins. Its methods add nothing; plugins override those that they need.
    Every task of a job that is passed to a plugin has a name.
    """

    defaults: ClassVar[Mapping[str, flags.Value]] = {}
    """Argument -> default value, whose type is the type of the argument."""
    ports: ClassVar[Sequence[str]] = ()
    """Arguments that are ports."""

    def argument_values(self, arguments: Sequence[str]) -> Mapping[str, Any]:
        """The values of all arguments. The default replaces an argument that is absent, that
        follows a parse error, or that is a port out of range."""
        values = flags.read(arguments, self.defaults).values
        return {
            **values,
            **{name: self.defaults[name] for name in self.ports if not _is_port(values[name])},
        }

    def problem(self, arguments: Sequence[str]) -> str:
        """Why the arguments are invalid; empty if they are valid. A job that bypassed admission
        runs with the values parsed before the error, and the default for a port out of range.
        """
        read = flags.read(arguments, self.defaults)
        wrong = (name for name in self.ports if not _is_port(read.values[name]))
        of_ports = (f"{name}={read.values[name]}: a port is 1 to 65535" for name in wrong)
        return read.fault or "; ".join(of_ports)

    def warning(self, arguments: Sequence[str]) -> str:
        """A warning about arguments that have no effect, which may belong to another version; empty
        if there are none."""
        ignored = flags.read(arguments, self.defaults).ignored
        known = ", ".join(sorted(self.defaults)) or "none"
        text = f"{', '.join(ignored)}: unknown, so ignored; known arguments: {known}"
        return text if ignored else ""

    def job_problem(self, job: Job, arguments: Sequence[str]) -> str:
        """Why no pod of this job can be created; empty if pods can be created."""
        return ""

    def objects(self, job: Job, arguments: Sequence[str]) -> Iterable[PluginObject]:
        """The additional objects for the job."""
        return ()

    def mutate_pod(
        self, pod: Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Change the pod of a task's index in place."""


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and 0 < value < 65536


def service_name_problem(name: str) -> str:
    """Why a Service cannot have this name, which begins with the job's name; empty if it can. The
    name of a Service must begin with a letter (RFC 1035), unlike a pod's."""
    if not name[:1].isalpha():
        fault = "which must begin with a letter: give the job a name that does"
    elif len(name) > LONGEST_SERVICE_NAME:
        most = LONGEST_SERVICE_NAME
        fault = f"which has {len(name)} characters, more than {most}: shorten the job's name"
    else:
        return ""
    return f"a Service of this job would be named {name}, {fault}"


def containers(pod: Pod) -> Iterator[dict[str, Any]]:
    """All containers of a pod: init containers, then main containers."""
    yield from pod["spec"].get("initContainers") or ()
    yield from main_containers(pod)


def main_containers(pod: Pod) -> Iterator[dict[str, Any]]:
    """The main containers of a pod, without its init containers."""
    yield from pod["spec"].get("containers") or ()


def add_env(container: dict[str, Any], variables: Sequence[dict[str, Any]]) -> None:
    """Append environment variables; if a name occurs twice, the last one is effective."""
    container["env"] = [*(container.get("env") or ()), *variables]


def variable(name: str, value: object) -> dict[str, str]:
    """An environment variable of a container."""
    return {"name": name, "value": str(value)}


def open_port(container: dict[str, Any], name: str, port: int) -> None:
    """Add a named port to the container, unless it already has the number."""
    existing_ports = container.get("ports") or ()
    if all(it.get("containerPort") != port for it in existing_ports):
        container["ports"] = [*existing_ports, {"name": name, "containerPort": port}]


def mount(container: dict[str, Any], volume: str, path: str, **more: str) -> None:
    """Mount a volume of the pod in a container."""
    mounted = {"name": volume, "mountPath": path, **more}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mounted]


def add_volume(pod: Pod, volume: dict[str, Any]) -> None:
    """Add a volume to the pod."""
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]


def task_named(job: Job, name: str) -> TaskSpec | None:
    """The task with this name."""
    return next((task for task in job.spec.tasks if task.name == name), None)


def pods_of(job: Job) -> dict[str, str]:
    """Labels that select all pods of the job and no others."""
    return {keys.JOB_NAME: job.metadata.name, keys.JOB_NAMESPACE: job.metadata.namespace}
