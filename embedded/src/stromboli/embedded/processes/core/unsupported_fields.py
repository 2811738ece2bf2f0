"""Fields of a pod that process nodes do not support: reported on the pod, never ignored silently.

The tables list the supported fields: those that process nodes read, and those that need no support
(only scheduling uses them, or their value always holds). Every other field is unsupported,
including fields of future Kubernetes versions.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from stromboli.embedded.processes.core import image_files
from stromboli.embedded.processes.core import pod as pods

Document = dict[str, Any]

_ANYTHING: Any = object()
"""Marks a field that is supported with any value."""

_PROBE = dict.fromkeys(
    (
        "exec",
        "httpGet",
        "tcpSocket",
        "initialDelaySeconds",
        "periodSeconds",
        "timeoutSeconds",
        "successThreshold",
        "failureThreshold",
        "terminationGracePeriodSeconds",
    ),
    _ANYTHING,
)
_CONTAINER: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            "name",
            "image",
            "imagePullPolicy",
            "command",
            "args",
            "workingDir",
            "env",
            "envFrom",
            "ports",
            "resizePolicy",
            "terminationMessagePath",
            "terminationMessagePolicy",
        ),
        _ANYTHING,
    ),
    "resources": {"requests": _ANYTHING, "limits": {"memory": _ANYTHING}},
    "restartPolicy": ("Always",),
    "volumeMounts": {
        **dict.fromkeys(("name", "mountPath", "subPath", "subPathExpr", "readOnly"), _ANYTHING),
        "mountPropagation": ("None",),
    },
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"preStop": {"exec": _ANYTHING}},
}
_VOLUME: Mapping[str, Any] = {
    **dict.fromkeys(("name", "configMap", "secret", "hostPath", "downwardAPI"), _ANYTHING),
    "emptyDir": {},
    "projected": {
        "defaultMode": _ANYTHING,
        "sources": dict.fromkeys(("configMap", "secret", "downwardAPI"), _ANYTHING),
    },
}
_SPEC: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            "nodeName",
            "schedulerName",
            "nodeSelector",
            "affinity",
            "tolerations",
            "priority",
            "priorityClassName",
            "preemptionPolicy",
            "schedulingGates",
            "topologySpreadConstraints",
            "overhead",
            "resourceClaims",
            "restartPolicy",
            "terminationGracePeriodSeconds",
            "activeDeadlineSeconds",
            "hostname",
            "subdomain",
            "hostAliases",
            "hostNetwork",
            "enableServiceLinks",
            "imagePullSecrets",
            "serviceAccount",
            "serviceAccountName",
            "automountServiceAccountToken",
        ),
        _ANYTHING,
    ),
    "dnsPolicy": ("ClusterFirst", "Default", "ClusterFirstWithHostNet"),
    "os": {"name": ("linux",)},
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "volumes": _VOLUME,
}


def unsupported_paths(pod: Document, *, at_true_paths: bool) -> list[str]:
    """Return the paths of unsupported fields, such as ``spec.containers[0].securityContext``, in
    the pod's order. ``at_true_paths``: whether mounts and the hosts file are at the paths that
    the pod specifies.
    """
    spec = pod.get("spec", {})
    field_paths = list(_unsupported(spec, _SPEC, "spec"))
    if not at_true_paths:
        for part in ("initContainers", "containers"):
            for index, container in enumerate(spec.get(part, ())):
                has_image = image_files.path_of(container.get("image", ""))
                if container.get("volumeMounts") and not has_image:
                    path = f"spec.{part}[{index}].volumeMounts"
                    field_paths.append(f"{path} at their paths (they are below $STROM_POD_ROOT)")
    return field_paths


def blocking_field(pod: pods.Pod, *, runs_images: bool) -> str:
    """Return why the pod cannot run here at all; empty if it can. ``runs_images``: whether a
    program for image files is installed.
    """
    for container in pod.containers:
        if path := image_files.path_of(container.image):
            if not runs_images:
                return (
                    f"container {container.name} has the image file {path}, and this node has "
                    f"neither {' nor '.join(image_files.PROGRAMS)} on its PATH: install Apptainer"
                )
        elif not container.command:
            return (
                f"container {container.name} has no command, and process nodes do not use images "
                "of registries, which would have one: set its command"
            )
    for volume in pod.spec.volumes:
        had = ("config_map", "secret", "empty_dir", "host_path", "downward_api", "projected")
        if all(getattr(volume, name) is None for name in had):
            return (
                f"volume {volume.name} has a type that process nodes do not support; use "
                "configMap, secret, emptyDir, hostPath, downwardAPI or projected"
            )
    return ""


def _unsupported(value: Any, supported: Any, path: str) -> Iterator[str]:
    if supported is _ANYTHING or value in ({}, [], "", False):
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unsupported(each, supported, f"{path}[{index}]")
    elif isinstance(supported, tuple):
        if value not in supported:
            yield f"{path}={value}"
    elif isinstance(value, dict):
        for name, below in value.items():
            if name in supported:
                yield from _unsupported(below, supported[name], f"{path}.{name}")
            elif below not in ({}, [], "", False):
                yield f"{path}.{name}"
    else:
        yield path
