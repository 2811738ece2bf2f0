"""Plugin ``svc``: the pods of a job find each other by name.

A headless Service gives every pod a name; a ConfigMap lists the names, as files under
``/etc/volcano`` and as variables; a NetworkPolicy lets only the job's own pods in.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from stromboli.controller.core import commands, manifest, tasks
from stromboli.controller.core.plugins import arguments as flags
from stromboli.controller.core.plugins import base
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job, TaskSpec

MOUNT_PATH = "/etc/volcano"
DEFAULTS = {
    "publish-not-ready-addresses": False,
    "disable-network-policy": False,
    "inject-hosts-env": True,
}


class _Names(msgspec.Struct, frozen=True):
    """What a template may say about its pods' names."""

    hostname: str = ""
    subdomain: str = ""


class Svc:
    """Service, host lists and network policy."""

    def problem(self, arguments: Sequence[str]) -> str:
        """What is wrong with the arguments."""
        return flags.booleans(arguments, DEFAULTS)[1]

    def resources(self, job: Job, arguments: Sequence[str]) -> tuple[commands.Create, ...]:
        """ConfigMap, Service and, unless disabled, NetworkPolicy."""
        asked, _ = flags.booleans(arguments, DEFAULTS)
        made = [
            _create(kinds.CONFIG_MAPS, job, config_map_name(job), data=host_lists(job)),
            _create(
                kinds.SERVICES,
                job,
                job.metadata.name,
                spec={
                    "clusterIP": "None",
                    "selector": _selector(job),
                    "publishNotReadyAddresses": asked["publish-not-ready-addresses"],
                },
            ),
        ]
        if not asked["disable-network-policy"]:
            ours = {"podSelector": {"matchLabels": _selector(job)}}
            policy = {**ours, "ingress": [{"from": [ours]}], "policyTypes": ["Ingress"]}
            made.append(_create(kinds.NETWORK_POLICIES, job, job.metadata.name, spec=policy))
        return tuple(made)

    def removals(self, job: Job) -> tuple[commands.Delete, ...]:
        """All three: deleting what is not there is no error."""
        name, namespace = job.metadata.name, job.metadata.namespace
        of = (
            (kinds.CONFIG_MAPS, config_map_name(job)),
            (kinds.SERVICES, name),
            (kinds.NETWORK_POLICIES, name),
        )
        return tuple(
            commands.Delete(kind=kind, namespace=namespace, name=it, owner_uid=job.metadata.uid)
            for kind, it in of
        )

    def digest(self, job: Job) -> str:
        """Of the host lists: they change when the job is scaled."""
        return hashlib.sha256(manifest.encode(host_lists(job))).hexdigest()[:12]

    def shape(
        self, spec: base.PodSpec, job: Job, member: tasks.Member, arguments: Sequence[str]
    ) -> None:
        """Give the pod its name, the files and the variables."""
        spec["hostname"] = spec.get("hostname") or member.name
        spec["subdomain"] = spec.get("subdomain") or job.metadata.name
        config_map = config_map_name(job)
        volume = {"name": config_map, "configMap": {"name": config_map}}
        spec["volumes"] = [*(spec.get("volumes") or ()), volume]
        asked, _ = flags.booleans(arguments, DEFAULTS)
        variables = _variables(job) if asked["inject-hosts-env"] else []
        for container in base.containers(spec):
            mount = {"name": config_map, "mountPath": MOUNT_PATH}
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
            base.add_env(container, variables)


def config_map_name(job: Job) -> str:
    """``<job>-svc``."""
    return f"{job.metadata.name}-svc"


def hosts(job: Job, task: TaskSpec) -> list[str]:
    """Addresses of a task's pods; pods that share a host name of the template count as one."""
    names = msgspec.json.decode(task.template.spec, type=_Names | None) or _Names()
    subdomain = names.subdomain or job.metadata.name
    if names.hostname:
        return [f"{names.hostname}.{subdomain}"]
    prefix = f"{job.metadata.name}-{task.name}-"
    return [f"{prefix}{index}.{subdomain}" for index in range(task.replicas)]


def host_lists(job: Job) -> dict[str, str]:
    """The ConfigMap's data: a file and two variables per task."""
    lists: dict[str, str] = {}
    for task in tasks.specs(job):
        found = hosts(job, task)
        name = task.name.replace("-", "_")
        lists[f"{name}.host"] = "\n".join(found)
        lists[f"VC_{name.upper()}_HOSTS"] = ",".join(found)
        lists[f"VC_{name.upper()}_NUM"] = str(task.replicas)
    return lists


def _variables(job: Job) -> list[dict[str, object]]:
    upper = (task.name.replace("-", "_").upper() for task in tasks.specs(job))
    names = [f"VC_{name}_{what}" for name in upper for what in ("HOSTS", "NUM")]
    config_map = config_map_name(job)
    return [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}
        for name in names
    ]


def _selector(job: Job) -> dict[str, str]:
    return {keys.JOB_NAME: job.metadata.name, keys.JOB_NAMESPACE: job.metadata.namespace}


def _create(kind: kinds.Kind, job: Job, name: str, **content: object) -> commands.Create:  # type: ignore[type-arg]
    return commands.Create(
        kind=kind,
        namespace=job.metadata.namespace,
        name=name,
        body=manifest.body(kind, job, name, **content),
        owner_uid=job.metadata.uid,
        update=manifest.encode(content) if kind is kinds.CONFIG_MAPS else b"",
    )
