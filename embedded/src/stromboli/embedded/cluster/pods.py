"""Rules for pods: defaults, priority, immutable fields and binding.

Source: ``pkg/registry/core/pod`` of Kubernetes 1.34 and its Priority admission plugin.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from stromboli.embedded.cluster import timestamps
from stromboli.shared import errors
from stromboli.shared.api import core
from stromboli.shared.formats import units

Document = dict[str, Any]

DEFAULT_GRACE_S = 30
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that exist in every cluster."""
DISRUPTED = "DisruptionTarget"
_MAY_CHANGE = ("tolerations", "activeDeadlineSeconds", "schedulingGates")


def set_defaults(pod: Document) -> None:
    """Set the defaults that schedulers and controllers read."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    if not spec.get("nodeName"):
        spec.pop("nodeName", None)


def set_priority(pod: Document, classes: Iterable[core.PriorityClass]) -> None:
    """Resolve the pod's priority class.

    Raises ValueError if the class does not exist or the pod's priority differs from it.
    """
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    known = {each.metadata.name: each for each in classes}
    if name and name not in known:
        raise ValueError(f"no PriorityClass with name {name} was found")
    defaults = [each for each in known.values() if each.global_default]
    chosen = known.get(name) or min(defaults, key=lambda each: each.value, default=None)
    value = chosen.value if chosen else 0
    if chosen:
        spec["priorityClassName"] = chosen.metadata.name
    if spec.get("priority") not in (None, value):
        raise ValueError(f"spec.priority is {spec['priority']}, its priority class has {value}")
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validation_errors(pod: Document) -> Iterable[str]:
    """Yield the validation errors of a pod whose fields have the right types."""
    containers = pod.get("spec", {}).get("containers")
    if not containers:
        yield "spec.containers: at least one is needed"
        return
    for index, container in enumerate(containers):
        for field in ("name", "image"):
            if not container.get(field):
                yield f"spec.containers[{index}].{field}: is missing"
    for part in ("containers", "initContainers"):
        for index, container in enumerate(pod["spec"].get(part) or ()):
            for field, stated in (container.get("resources") or {}).items():
                if field in ("requests", "limits"):
                    yield from _quantity_faults(f"spec.{part}[{index}].resources.{field}", stated)
    yield from _quantity_faults("spec.overhead", pod["spec"].get("overhead"))


def _quantity_faults(path: str, stated: Document | None) -> Iterable[str]:
    for name, value in (stated or {}).items():
        try:
            units.amount(name, value)
        except ValueError as error:
            yield f"{path}[{name}]: {error}"


def update_errors(old: Document, new: Document) -> Iterable[str]:
    """Yield the forbidden changes between two versions of a pod."""
    if _immutable_fields(old["spec"]) != _immutable_fields(new.get("spec", {})):
        yield f"spec: only images and {', '.join(_MAY_CHANGE)} of a pod may be changed"


def _immutable_fields(spec: Document) -> Document:
    """Return the fields of a spec that never change."""
    fixed = {name: value for name, value in spec.items() if name not in _MAY_CHANGE}
    for part in ("containers", "initContainers"):
        if part in fixed:
            fixed[part] = [{**container, "image": ""} for container in fixed[part]]
    return fixed


def container_of(pod: core.Pod, requested: str, what: str) -> str:
    """Return the name of the requested container; of the only main container if ``requested`` is
    empty. Raises InvalidError that lists the containers of the pod."""
    mains = [each.name for each in pod.spec.containers]
    known = [*(each.name for each in pod.spec.init_containers), *mains]
    if not requested and len(mains) == 1:
        return mains[0]
    if requested not in known:
        reason = (
            f"no container {requested!r}"
            if requested
            else "the pod has several containers; specify one"
        )
        raise errors.InvalidError(what, f"{reason}; there are {', '.join(known)}")
    return requested


def grace_s(pod: Document, asked_s: int | None) -> int:
    """Return the seconds that a deletion waits for the kubelet: 0 unless the pod is bound and
    unfinished.
    """
    spec, status = pod["spec"], pod.get("status", {})
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    own = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    grace = int(own if asked_s is None else asked_s)
    return grace if grace >= 0 else 1


def disrupted(pod: Document, now: datetime) -> Document:
    """Return a copy of the pod with the condition that an eviction sets."""
    status = pod.get("status", {})
    condition = {
        "type": DISRUPTED,
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": timestamps.timestamp(now),
    }
    others = [each for each in status.get("conditions", ()) if each["type"] != DISRUPTED]
    return {**pod, "status": {**status, "conditions": [*others, condition]}}


def bind(
    pod: Document,
    uid: str,
    node: str,
    annotations: Mapping[str, str],
    now: datetime,
    what: str,
) -> Document:
    """Return a copy of the pod bound to the node. Raises ConflictError."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if uid and uid != metadata["uid"]:
        raise errors.ConflictError(what, f"the uid is {metadata['uid']}, not {uid}")
    if "deletionTimestamp" in metadata:
        raise errors.ConflictError(what, "the pod is being deleted")
    if spec.get("nodeName"):
        raise errors.ConflictError(what, f"the pod is already assigned to {spec['nodeName']}")
    if spec.get("schedulingGates"):
        raise errors.ConflictError(what, "the pod has scheduling gates")
    metadata = dict(metadata)
    if annotations:
        metadata["annotations"] = (metadata.get("annotations") or {}) | dict(annotations)
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamps.timestamp(now),
    }
    others = [each for each in status.get("conditions", ()) if each["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": metadata,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }
