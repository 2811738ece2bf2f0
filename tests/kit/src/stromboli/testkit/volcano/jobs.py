"""The documents of one job as Volcano's webhooks, controllers and scheduler write them.

A job is described by its phase and the states of its pods; from that follow the Job with its
status, the PodGroup, the pods and the objects of its plugins. Nothing here uses our builders:
names, keys and counts follow Volcano's sources (``pkg/controllers/job``, ``pkg/scheduler``).
Relevant differences from Stromboli's objects:

1. A PodGroup has no job version, and is deleted with each version.
2. A status has no ``state.reason``; a finished job's counts are zero once it was cleaned up.
3. A restart of a task, pod or partition leaves no trace but ``retryCount`` and phase Restarting.
4. Names of claims and of pods' volumes are random.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Document = dict[str, Any]
BATCH, SCHEDULING = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
SCHEDULER = "volcano"
ABSENT, UNBOUND, RUNNING, SUCCEEDED, FAILED = (
    "Absent",
    "Unbound",
    "Running",
    "Succeeded",
    "Failed",
)
"""States of a pod. ``Unbound`` has no node."""
FINISHED = ("Completed", "Failed", "Terminated", "Aborted")
CLAIM_SUFFIX = "x0k3m9a7q2zt"
"""Replaces the twelve random characters in the name of a claim."""
_OUT = {SUCCEEDED: 0, FAILED: 1}


class TaskLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A task, with one state for each of its pods."""

    pods: tuple[str, ...]
    name: str = "worker"
    cpu: str = "100m"
    min_available: int | None = None
    policies: tuple[Document, ...] = ()
    exit_code: int = 1


class JobLeft(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job that Volcano left. ``group``: the PodGroup's phase, empty if there is
    none. ``pod_version``: the job version in the pods' annotations, by default the current one."""

    name: str
    phase: str
    tasks: tuple[TaskLeft, ...]
    group: str = ""
    queue: str = "default"
    min_available: int | None = None
    min_success: int | None = None
    max_retry: int = 3
    retry_count: int = 0
    version: int = 0
    pod_version: int | None = None
    policies: tuple[Document, ...] = ()
    plugins: Mapping[str, list[str]] = {}
    priority_class: str = ""
    claim: bool = False
    namespace: str = "default"

    def kept(self) -> set[str]:
        """Names of the pods that must neither be deleted nor be replaced by another controller."""
        ends = self.phase not in ("Pending", "Running", "Restarting")
        found = {
            f"{self.name}-{task.name}-{index}": state
            for task in self.tasks
            for index, state in enumerate(task.pods)
        }
        alive = (RUNNING, UNBOUND)
        return {
            name
            for name, state in found.items()
            if state in (SUCCEEDED, FAILED) or (state in alive and not ends)
        }

    @property
    def gang(self) -> int:
        """``minAvailable``, as the webhook sets it."""
        return _gang(self.tasks) if self.min_available is None else self.min_available


def _gang(tasks: tuple[TaskLeft, ...]) -> int:
    return sum(_least(task) for task in tasks)


def _least(task: TaskLeft) -> int:
    return len(task.pods) if task.min_available is None else task.min_available


def job(left: JobLeft) -> Document:
    """The Job without status, with the webhook's defaults."""
    spec: Document = {
        "schedulerName": SCHEDULER,
        "queue": left.queue,
        "minAvailable": left.gang,
        "maxRetry": left.max_retry,
        "policies": list(left.policies),
        "plugins": {name: list(given) for name, given in left.plugins.items()},
        "tasks": [
            {
                "name": task.name,
                "replicas": len(task.pods),
                "minAvailable": _least(task),
                "maxRetry": 3,
                "policies": list(task.policies),
                "template": {"metadata": {}, "spec": _pod_spec(task)},
            }
            for task in left.tasks
        ],
    }
    if left.min_success is not None:
        spec["minSuccess"] = left.min_success
    if left.priority_class:
        spec["priorityClassName"] = left.priority_class
    if left.claim:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        volume = {"mountPath": "/data", "volumeClaim": claim}
        spec["volumes"] = [{**volume, "volumeClaimName": claim_name(left)}]
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": {"name": left.name, "namespace": left.namespace},
        "spec": spec,
    }


def _pod_spec(task: TaskLeft) -> Document:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": task.cpu, "memory": "16Mi"}},
    }
    return {"restartPolicy": "Never", "containers": [container]}


def claim_name(left: JobLeft) -> str:
    """The name of the claim that Volcano made for the job."""
    return f"{left.name}-pvc-{CLAIM_SUFFIX}"


def job_status(left: JobLeft, at: str) -> Document:
    """The status, with only Volcano's fields. ``at``: the time of its last transition."""
    status: Document = {
        "state": {"phase": left.phase, "lastTransitionTime": at},
        "minAvailable": left.gang,
        "conditions": [{"status": left.phase, "lastTransitionTime": at}],
        "controlledResources": {},
    }
    if left.phase not in FINISHED:
        status["controlledResources"] = {
            f"plugin-{name}": name for name in sorted(left.plugins) if name != "hcclrank"
        }
        status |= _counts(left)
    if left.claim:
        status["controlledResources"][f"volume-pvc-{claim_name(left)}"] = claim_name(left)
    if left.version:
        status["version"] = left.version
    if left.retry_count:
        status["retryCount"] = left.retry_count
    if left.phase in FINISHED:
        status["runningDuration"] = "1m30s"
    return status


def _counts(left: JobLeft) -> Document:
    """Counters, without those that are zero; a Restarting job has only those of kept pods."""
    counted: dict[str, int] = {}
    by_task: dict[str, dict[str, int]] = {}
    for task in left.tasks:
        for state in task.pods:
            phase = "Pending" if state == UNBOUND else state
            if state == ABSENT:
                continue
            counted[phase.lower()] = counted.get(phase.lower(), 0) + 1
            of_task = by_task.setdefault(task.name, {})
            of_task[phase] = of_task.get(phase, 0) + 1
    if not counted:
        return {}
    shown = {name: {"phase": phases} for name, phases in by_task.items()}
    return {**counted, "taskStatusCount": shown}


def group_name(left: JobLeft, uid: str) -> str:
    """The name of the job's PodGroup, ``<job>-<uid>``."""
    return f"{left.name}-{uid}"


def pod_group(left: JobLeft, uid: str, at: str) -> Document:
    """The PodGroup, with phase and conditions as Volcano's scheduler sets them."""
    conditions = []
    if left.group == "Running":
        conditions = [_condition("Scheduled", "tasks in gang are ready to be scheduled", "", at)]
    elif left.group in ("Pending", "Inqueue"):
        why = f"{left.gang}/0 tasks in gang unschedulable: pod group is not ready"
        conditions = [_condition("Unschedulable", "NotEnoughResources", why, at)]
    spec: Document = {
        "minMember": left.gang,
        "minTaskMember": {task.name: _least(task) for task in left.tasks},
        "queue": left.queue,
        "minResources": _min_resources(left),
    }
    if left.priority_class:
        spec["priorityClassName"] = left.priority_class
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(left, uid),
            "namespace": left.namespace,
            "ownerReferences": [owner(left, uid)],
        },
        "spec": spec,
        "status": {
            "phase": left.group,
            "conditions": conditions,
            **{key: count for key, count in _group_counts(left).items() if count},
        },
    }


def _condition(kind: str, reason: str, message: str, at: str) -> Document:
    found = {
        "type": kind,
        "status": "True",
        "transitionID": "0e7ff6d1-3bd2-4e0a-a1f1-8a4b1d3f0c11",
        "lastTransitionTime": at,
        "reason": reason,
    }
    return found | ({"message": message} if message else {})


def _group_counts(left: JobLeft) -> dict[str, int]:
    states = [state for task in left.tasks for state in task.pods]
    return {state.lower(): states.count(state) for state in (RUNNING, SUCCEEDED, FAILED)}


def _min_resources(left: JobLeft) -> Document:
    """``minResources``: the requests of the smallest gang, with tasks in order, each up to its
    minimum."""
    open_, milli = left.gang, 0
    counts = []
    for task in left.tasks:
        counts.append(min(_least(task), open_))
        open_ -= counts[-1]
    for task, count in zip(left.tasks, counts, strict=True):
        milli += count * int(task.cpu.removesuffix("m"))
    pods = str(left.gang)
    cpu = f"{milli}m" if milli % 1000 else str(milli // 1000)
    memory = f"{16 * left.gang}Mi"
    return {
        "count/pods": pods,
        "pods": pods,
        "cpu": cpu,
        "memory": memory,
        "requests.cpu": cpu,
        "requests.memory": memory,
    }


def owner(left: JobLeft, uid: str) -> Document:
    """The owner reference of a job's objects."""
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "name": left.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pods(left: JobLeft, uid: str, node: str) -> Iterator[Document]:
    """The pods with their status; all that have a node are on ``node``."""
    version = left.version if left.pod_version is None else left.pod_version
    for task in left.tasks:
        for index, state in enumerate(task.pods):
            if state == ABSENT:
                continue
            labels = {
                "volcano.sh/task-index": str(index),
                "volcano.sh/task-spec": task.name,
                "volcano.sh/job-name": left.name,
                "volcano.sh/job-namespace": left.namespace,
                "volcano.sh/queue-name": left.queue,
            }
            annotations = {
                "volcano.sh/task-index": str(index),
                "volcano.sh/task-spec": task.name,
                "scheduling.k8s.io/group-name": group_name(left, uid),
                "volcano.sh/job-name": left.name,
                "volcano.sh/queue-name": left.queue,
                "volcano.sh/job-version": str(version),
                "volcano.sh/template-uid": f"{left.name}-{task.name}",
                "volcano.sh/job-retry-count": str(left.retry_count),
            }
            spec = {**_pod_spec(task), "schedulerName": SCHEDULER}
            if left.priority_class:
                spec["priorityClassName"] = left.priority_class
            if state != UNBOUND:
                spec["nodeName"] = node
            _let_plugins_add(left, task, index, spec)
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{left.name}-{task.name}-{index}",
                    "namespace": left.namespace,
                    "labels": labels,
                    "annotations": annotations,
                    "ownerReferences": [owner(left, uid)],
                },
                "spec": spec,
                "status": _pod_status(task, state),
            }


def _let_plugins_add(left: JobLeft, task: TaskLeft, index: int, spec: Document) -> None:
    container = spec["containers"][0]
    mounts, volumes = container.setdefault("volumeMounts", []), spec.setdefault("volumes", [])
    if "env" in left.plugins:
        container["env"] = [
            {"name": "VK_TASK_INDEX", "value": str(index)},
            {"name": "VC_TASK_INDEX", "value": str(index)},
        ]
    if "svc" in left.plugins:
        spec |= {"hostname": f"{left.name}-{task.name}-{index}", "subdomain": left.name}
        name = f"{left.name}-svc"
        volumes.append({"name": name, "configMap": {"name": name}})
        mounts.append({"name": name, "mountPath": "/etc/volcano"})
    if "ssh" in left.plugins:
        name = f"{left.name}-ssh"
        volumes.append({"name": name, "secret": {"secretName": name, "defaultMode": 0o600}})
        mounts.append({"name": name, "mountPath": "/root/.ssh", "subPath": ".ssh"})
    if left.claim:
        name = f"{left.name}-a8d0p2v6c4n1"
        claim = {"claimName": claim_name(left)}
        volumes.append({"name": name, "persistentVolumeClaim": claim})
        mounts.append({"name": name, "mountPath": "/data"})


def _pod_status(task: TaskLeft, state: str) -> Document:
    phase = "Pending" if state == UNBOUND else state
    status: Document = {"phase": phase}
    if state in _OUT:
        code = 0 if state == SUCCEEDED else task.exit_code
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        status["containerStatuses"] = [_container({"terminated": ended})]
    elif state == RUNNING:
        status["containerStatuses"] = [_container({"running": {}})]
    return status


def _container(state: Document) -> Document:
    is_running = "running" in state
    return {
        **{"name": "main", "image": "busybox", "imageID": "", "restartCount": 0},
        **{"ready": is_running, "started": is_running, "state": state},
    }


def other_objects(left: JobLeft, uid: str) -> Iterator[Document]:
    """The objects of the plugins ``svc`` and ``ssh``, and the claim."""
    alive = left.phase not in FINISHED
    meta = {"namespace": left.namespace, "ownerReferences": [owner(left, uid)]}
    if left.claim:
        spec = job(left)["spec"]["volumes"][0]["volumeClaim"]
        yield _object("v1", "PersistentVolumeClaim", claim_name(left), meta, spec=spec)
    if "svc" in left.plugins and alive:
        selector = {
            "volcano.sh/job-name": left.name,
            "volcano.sh/job-namespace": left.namespace,
        }
        yield _object("v1", "ConfigMap", f"{left.name}-svc", meta, data=_hosts(left))
        service = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": False}
        yield _object("v1", "Service", left.name, meta, spec=service)
        peers = [{"from": [{"podSelector": {"matchLabels": selector}}]}]
        policy = {
            "podSelector": {"matchLabels": selector},
            "ingress": peers,
            "policyTypes": ["Ingress"],
        }
        yield _object("networking.k8s.io/v1", "NetworkPolicy", left.name, meta, spec=policy)
    if "ssh" in left.plugins and alive:
        files = {
            "id_rsa": "-----BEGIN RSA PRIVATE KEY-----\nVolcano's own\n",
            "id_rsa.pub": "ssh-rsa AAAAVolcanos",
            "authorized_keys": "ssh-rsa AAAAVolcanos",
            "config": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n",
        }
        data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
        yield _object("v1", "Secret", f"{left.name}-ssh", meta, data=data)


def _object(version: str, kind: str, name: str, meta: Document, **rest: Any) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}, **rest}


def _hosts(left: JobLeft) -> dict[str, str]:
    found: dict[str, str] = {}
    for task in left.tasks:
        hosts = [f"{left.name}-{task.name}-{index}.{left.name}" for index in range(len(task.pods))]
        plain = task.name.replace("-", "_")
        found[f"{plain}.host"] = "\n".join(hosts)
        found[f"VC_{plain.upper()}_HOSTS"] = ",".join(hosts)
        found[f"VC_{plain.upper()}_NUM"] = str(len(hosts))
    return found
