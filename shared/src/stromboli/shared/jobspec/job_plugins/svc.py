"""Plugin ``svc``: DNS names for the pods of a job.

A headless Service gives every pod a name; a ConfigMap lists the names, as files under
``/etc/volcano`` and as variables; a NetworkPolicy admits traffic only from the job's own pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base, hosts
from stromboli.shared.jobspec.job_plugins.arguments import Value

MOUNT_PATH = "/etc/volcano"


class Svc(base.Plugin):
    """Creates the Service, the ConfigMap with host lists, and the NetworkPolicy."""

    defaults: ClassVar[Mapping[str, Value]] = {
        "publish-not-ready-addresses": False,
        "disable-network-policy": False,
        "inject-hosts-env": True,
    }

    def job_problem(self, job: Job, arguments: Sequence[str]) -> str:
        """Why no pod can be created: without its Service, no name of a pod would be resolved."""
        return base.service_name_problem(job.metadata.name)

    def objects(self, job: Job, arguments: Sequence[str]) -> Iterator[base.PluginObject]:
        """ConfigMap, Service and, unless disabled, NetworkPolicy."""
        requested, name = self.argument_values(arguments), job.metadata.name
        yield base.PluginObject(
            kind=kinds.CONFIG_MAPS,
            name=config_map_name(job),
            content={"data": host_lists(job)},
            follows=True,
        )
        service = {
            "clusterIP": "None",
            "selector": base.pods_of(job),
            "publishNotReadyAddresses": requested["publish-not-ready-addresses"],
        }
        yield base.PluginObject(kind=kinds.SERVICES, name=name, content={"spec": service})
        if not requested["disable-network-policy"]:
            ours = {"podSelector": {"matchLabels": base.pods_of(job)}}
            policy = {**ours, "ingress": [{"from": [ours]}], "policyTypes": ["Ingress"]}
            yield base.PluginObject(
                kind=kinds.NETWORK_POLICIES, name=name, content={"spec": policy}
            )

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Set the pod's hostname, and mount the files and variables."""
        spec = pod["spec"]
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or job.metadata.name
        config_map = config_map_name(job)
        base.add_volume(pod, {"name": config_map, "configMap": {"name": config_map}})
        variables = _variables(job) if self.argument_values(arguments)["inject-hosts-env"] else []
        for container in base.containers(pod):
            base.mount(container, config_map, MOUNT_PATH)
            base.add_env(container, variables)


def config_map_name(job: Job) -> str:
    """The name of the ConfigMap: ``<job>-svc``."""
    return f"{job.metadata.name}-svc"


def host_lists(job: Job) -> dict[str, str]:
    """The ConfigMap's data: one file and two variables per task."""
    lists: dict[str, str] = {}
    for task in job.spec.tasks:
        task_hosts = hosts.addresses(job, task)
        name = task.name.replace("-", "_")
        lists[f"{name}.host"] = "\n".join(task_hosts)
        lists[f"VC_{name.upper()}_HOSTS"] = ",".join(task_hosts)
        lists[f"VC_{name.upper()}_NUM"] = str(task.replicas)
    return lists


def _variables(job: Job) -> list[dict[str, object]]:
    upper = (task.name.replace("-", "_").upper() for task in job.spec.tasks)
    names = [f"VC_{name}_{what}" for name in upper for what in ("HOSTS", "NUM")]
    config_map = config_map_name(job)
    return [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}
        for name in names
    ]
