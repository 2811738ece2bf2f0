"""Pods that no predicate and no score can distinguish form one class.

The sample pod sets every field of the Kubernetes type, also fields that are not decoded. Each field
in turn gets another value: fields that plugins read split the class, no other field does.
"""

import copy
import gc
import json
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stromboli.scheduler.core.model import requirements, task_classes
from stromboli.shared import keys
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.jobspec import data_sets
from stromboli.testkit import builders, served_pods

Path = tuple[str | int, ...]

SELECTOR = {
    "matchLabels": {"app": "a"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["one"]}],
}
NODE_TERM = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
POD_TERM = {
    "topologyKey": "zone",
    "labelSelector": SELECTOR,
    "namespaces": ["default"],
    "namespaceSelector": SELECTOR,
    "matchLabelKeys": ["app"],
    "mismatchLabelKeys": ["other"],
}
POD_RULES = {
    "requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": POD_TERM}],
}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": NODE_TERM}],
    },
    "podAffinity": POD_RULES,
    "podAntiAffinity": POD_RULES,
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": SELECTOR,
    "minDomains": 2,
    "nodeAffinityPolicy": "Honor",
    "nodeTaintsPolicy": "Ignore",
    "matchLabelKeys": ["app"],
}
CONTAINER = {
    "name": "main",
    "image": "registry/image:1",
    "command": ["run"],
    "args": ["--fast"],
    "workingDir": "/work",
    "env": [{"name": "INDEX", "value": "1"}],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "resources": {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2"},
        "claims": [{"name": "gpu"}],
    },
    "restartPolicy": "Always",
    "ports": [
        {
            "name": "web",
            "containerPort": 80,
            "hostPort": 8080,
            "hostIP": "10.0.0.1",
            "protocol": "TCP",
        }
    ],
    "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 10},
    "lifecycle": {"preStop": {"exec": {"command": ["stop"]}}},
    "securityContext": {"runAsUser": 1000},
    "stdin": True,
}
CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
CONTAINER_STATUS = {
    "name": "main",
    "ready": True,
    "restartCount": 1,
    "state": {"terminated": {"exitCode": 1, "reason": "Error"}},
}


def full() -> dict[str, Any]:
    """A pod that sets every field."""
    document = served_pods.document(builders.make_pod("job-w-0", "job"))
    document["metadata"] |= {
        "generateName": "job-w-",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "labels": {"app": "a", "other": "o", "index": "0"},
        "annotations": {"note": "text", "scheduling.k8s.io/group-name": "job"},
        "ownerReferences": [
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "name": "job",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": ["example.com/wait"],
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    }
    document["spec"] |= {
        "nodeName": "n1",
        "nodeSelector": {"pool": "a"},
        "affinity": AFFINITY,
        "tolerations": [
            {"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
            *document["spec"]["tolerations"],
        ],
        "priorityClassName": "high",
        "hostname": "job-w-0",
        "subdomain": "job",
        "activeDeadlineSeconds": 100,
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "overhead": {"cpu": "1m"},
        "schedulingGates": [{"name": "example.com/gate"}],
        "topologySpreadConstraints": [SPREAD],
        "volumes": [
            *document["spec"]["volumes"],
            {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"x": "y"}}}},
            {"name": "more", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
        "resourceClaims": [
            {
                "name": "gpu",
                "resourceClaimName": "gpu",
                "resourceClaimTemplateName": "template",
            }
        ],
    }
    document["status"] = {
        "phase": "Pending",
        "reason": "Waiting",
        "startTime": "2026-01-01T00:00:00Z",
        "podIP": "10.0.0.2",
        "nominatedNodeName": "n1",
        "conditions": [CONDITION],
        "containerStatuses": [CONTAINER_STATUS],
        "initContainerStatuses": [CONTAINER_STATUS],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu-1"}],
    }
    again: dict[str, Any] = json.loads(json.dumps(document))  # no part occurs twice
    return again


READ = (
    "metadata.namespace",
    "metadata.labels.app",
    "metadata.labels.other",
    "metadata.labels.tier",
    "spec.nodeSelector",
    "spec.affinity",
    "spec.tolerations.*.key",
    "spec.tolerations.*.operator",
    "spec.tolerations.*.value",
    "spec.tolerations.*.effect",
    "spec.topologySpreadConstraints",
    "spec.overhead",
    "spec.containers.*.resources.requests",
    "spec.containers.*.image",
    "spec.containers.*.ports.*.hostPort",
    "spec.containers.*.ports.*.hostIP",
    "spec.containers.*.ports.*.protocol",
    "spec.initContainers.*.resources.requests",
    "spec.initContainers.*.restartPolicy",
    "spec.initContainers.*.ports.*.hostPort",
    "spec.initContainers.*.ports.*.hostIP",
    "spec.initContainers.*.ports.*.protocol",
    "spec.volumes.*.persistentVolumeClaim.claimName",
)
"""Fields that predicates and scores read through a class, with everything below them. Fields that
plugins read by themselves, such as ResourceClaims, are not part of it (``add_class_key``).
"""


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all values that are neither maps nor lists."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from leaves(each, (*path, at))
    else:
        yield path


def text(path: Path) -> str:
    return ".".join("*" if isinstance(part, int) else part for part in path)


def is_read(path: Path) -> bool:
    return any(text(path) == known or text(path).startswith(f"{known}.") for known in READ)


OTHERWISE = {
    "operator": "NotIn",
    "whenUnsatisfiable": "ScheduleAnyway",
    "requests": "3",
    "overhead": "3",
    "startTime": "2026-03-01T00:00:00Z",
}


def changed(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The document with another value of the same type at the path."""
    result = copy.deepcopy(document)
    holder: Any = result
    for part in path[:-1]:
        holder = holder[part]
    value = holder[path[-1]]
    if isinstance(value, bool):
        holder[path[-1]] = not value
    elif isinstance(value, int):
        holder[path[-1]] = value + 1
    elif str(path[-1]).endswith(("Timestamp", "Time")):
        holder[path[-1]] = "2026-03-01T00:00:00Z"
    elif path[-2] in ("requests", "limits", "overhead"):
        holder[path[-1]] = "3"
    elif path[-1] == "resourceVersion":
        holder[path[-1]] = "77"
    else:
        holder[path[-1]] = OTHERWISE.get(str(path[-1]), f"{value}-other")
    return result


def are_one(left: dict[str, Any], right: dict[str, Any]) -> bool:
    interned = task_classes.TaskClassIndex()
    pods = [kinds.PODS.decode(msgspec.json.encode(each)) for each in (left, right)]
    for pod in pods:
        interned.select(pod)
    first, second = (interned.of(pod) for pod in pods)
    return first is second


@pytest.mark.parametrize("path", list(leaves(full())), ids=text)
def test_a_field_splits_a_class_exactly_if_a_plugin_reads_it(path: Path) -> None:
    document = full()
    if path[:2] in (("apiVersion",), ("kind",)):
        return
    assert are_one(document, changed(document, path)) is not is_read(path)


def test_the_sample_pod_sets_every_field_that_plugins_read() -> None:
    """Otherwise a new field would not be tested here."""
    said = {text(path) for path in leaves(full())}
    known = {part for path in said for part in prefixes(path)}
    assert [path for path in fields(core.Pod) if path not in known] == []


def prefixes(path: str) -> Iterator[str]:
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def fields(of: Any, path: str = "") -> Iterator[str]:
    """Paths of all fields of a Struct and of the Structs in it."""
    for field in msgspec.structs.fields(of):
        own = f"{path}{field.encode_name}"
        for inner, is_many in structs(field.type):
            yield from fields(inner, f"{own}.*." if is_many else f"{own}.")
        yield own


def structs(of: Any, is_many: bool = False) -> Iterator[tuple[type[msgspec.Struct], bool]]:
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        yield of, is_many
    for part in typing.get_args(of):
        yield from structs(part, is_many or typing.get_origin(of) is tuple)


def test_pods_of_a_gang_are_one_class_as_served() -> None:
    """Although each has a token volume with its own name."""
    interned = task_classes.TaskClassIndex()
    pods = [served_pods.served_pod(builders.make_pod(f"job-w-{at}", "job")) for at in range(20)]
    assert len({pod.spec.volumes[-1].name for pod in pods}) == 20
    assert len({id(task_class) for task_class in [interned.of(pod) for pod in pods]}) == 1


def test_the_order_of_maps_and_unordered_lists_splits_no_class() -> None:
    document, other = full(), full()
    for each, names in ((document, ("a", "b")), (other, ("b", "a"))):
        each["spec"]["nodeSelector"] = dict.fromkeys(names, "1")
        each["metadata"]["labels"] |= dict.fromkeys(names, "1")
        each["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            0
        ]["labelSelector"]["matchLabels"] = dict.fromkeys(names, "1")
        each["spec"]["containers"] = [
            CONTAINER | {"image": f"image-{name}", "name": name} for name in names
        ]
        each["spec"]["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names
        ]
    assert are_one(document, other)


def test_classes_live_no_longer_than_their_pods() -> None:
    """Users with new requests all the time cost nothing when their pods are deleted."""
    interned = task_classes.TaskClassIndex()
    kept = interned.of(builders.make_pod("kept", cpu="7"))
    for at in range(3 * requirements.MAX_CACHED_SPECS):
        interned.of(builders.make_pod("gone", cpu=f"{at}m"))
    gc.collect()
    assert len(interned) == 1
    assert interned.of(builders.make_pod("again", cpu="7")) is kept
    assert interned.shapes <= requirements.MAX_CACHED_SPECS + 1


def test_requirements_that_are_dropped_from_the_cache_are_still_interned() -> None:
    """Equal pods that arrive late are placed in one run with those that arrived early."""
    interned = task_classes.TaskClassIndex()
    first = interned.of(builders.make_pod("first", cpu="7"))
    for at in range(requirements.MAX_CACHED_SPECS + 1):
        interned.of(builders.make_pod("others", cpu=f"{at}m"))
    assert interned.of(builders.make_pod("second", cpu="7000m")) is first


def test_data_sets_split_a_class_and_their_text_does_not() -> None:
    """The annotation lists them as JSON, which may be written with spaces."""

    def pod(**changes: Any) -> dict[str, Any]:
        document = full()
        requests = [data_sets.request_of(batch.DataSet(name="a", uri="s3://b/a", **changes))]
        document["metadata"]["annotations"][keys.DATA_SETS] = data_sets.annotation(tuple(requests))
        return document

    spaced = pod()
    found = json.loads(spaced["metadata"]["annotations"][keys.DATA_SETS])
    spaced["metadata"]["annotations"][keys.DATA_SETS] = json.dumps(found, indent=1)
    assert are_one(pod(), spaced)
    assert not are_one(pod(), full())
    assert not are_one(pod(), pod(locality="Required"))
