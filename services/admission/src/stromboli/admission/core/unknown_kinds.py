"""The violation for a submitted object whose kind is not accepted: it names what to submit instead.

For an API version that Kubernetes or Volcano has removed, it names the replacement.
Source: https://kubernetes.io/docs/reference/using-api/deprecation-guide/.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stromboli.shared.api import kinds
from stromboli.shared.messages.admission import Violation

MAX_SHOWN_LENGTH = 100
"""Maximum number of characters that are shown of a field with arbitrary text of a client."""


class Removal(NamedTuple):
    """The removal of a kind from an API version. ``release``: the first release without it.
    ``replacement``: the apiVersion that now has the kind; empty if no version has it."""

    release: str
    replacement: str


_APPS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_RBAC = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_STORAGE = ("CSIDriver", "CSINode", "StorageClass", "VolumeAttachment")
_GROUPS = ("PodGroup", "Queue")
_V1BETA1 = "scheduling.volcano.sh/v1beta1"
_TABLE: tuple[tuple[str, str, str, Iterable[str]], ...] = (
    ("extensions/v1beta1", "Kubernetes 1.16", "apps/v1", _APPS[:3]),
    ("extensions/v1beta1", "Kubernetes 1.16", "networking.k8s.io/v1", ["NetworkPolicy"]),
    ("extensions/v1beta1", "Kubernetes 1.22", "networking.k8s.io/v1", ["Ingress"]),
    ("apps/v1beta1", "Kubernetes 1.16", "apps/v1", _APPS),
    ("apps/v1beta2", "Kubernetes 1.16", "apps/v1", _APPS),
    (
        "networking.k8s.io/v1beta1",
        "Kubernetes 1.22",
        "networking.k8s.io/v1",
        ["Ingress", "IngressClass"],
    ),
    ("batch/v2alpha1", "Kubernetes 1.21", "batch/v1", ["CronJob"]),
    ("batch/v1beta1", "Kubernetes 1.25", "batch/v1", ["CronJob"]),
    ("policy/v1beta1", "Kubernetes 1.25", "policy/v1", ["PodDisruptionBudget"]),
    ("policy/v1beta1", "Kubernetes 1.25", "", ["PodSecurityPolicy"]),
    ("scheduling.k8s.io/v1beta1", "Kubernetes 1.22", "scheduling.k8s.io/v1", ["PriorityClass"]),
    ("storage.k8s.io/v1beta1", "Kubernetes 1.22", "storage.k8s.io/v1", _STORAGE),
    ("storage.k8s.io/v1beta1", "Kubernetes 1.27", "storage.k8s.io/v1", ["CSIStorageCapacity"]),
    (
        "rbac.authorization.k8s.io/v1beta1",
        "Kubernetes 1.22",
        "rbac.authorization.k8s.io/v1",
        _RBAC,
    ),
    (
        "autoscaling/v2beta2",
        "Kubernetes 1.26",
        "autoscaling/v2",
        ["HorizontalPodAutoscaler"],
    ),
    ("scheduling.incubator.k8s.io/v1alpha1", "Volcano", _V1BETA1, _GROUPS),
    ("scheduling.volcano.sh/v1alpha1", "Volcano", _V1BETA1, _GROUPS),
    ("scheduling.volcano.sh/v1alpha2", "Volcano", _V1BETA1, _GROUPS),
)
REMOVED: Mapping[tuple[str, str], Removal] = {
    (api_version, kind): Removal(release, replacement)
    for api_version, release, replacement, of in _TABLE
    for kind in of
}
"""(apiVersion, kind) as in a manifest -> its removal."""


def unknown_kind(api_version: str, kind: str, path: str) -> Violation:
    """The violation for an object of a kind that is not accepted; it names the kind to submit
    instead."""
    named = f"{api_version[:MAX_SHOWN_LENGTH]} {kind[:MAX_SHOWN_LENGTH]}"
    removal = REMOVED.get((api_version, kind))
    if removal is not None:
        reason = f"{named} was removed in {removal.release}"
        return Violation(path=path, reason=reason, expected=_instead(kind, removal.replacement))
    reason = f"{named} is unknown"
    return Violation(path=path, reason=reason, expected=_nearest(kind))


def _instead(kind: str, replacement: str) -> str:
    """A text that names the kind which replaces a removed one. ``strom apply`` does not accept all
    of these kinds."""
    if not replacement:
        return "remove the object: nothing replaces it"
    text = f"{replacement} {kind}"
    if kinds.BY_NAME.get((replacement, kind)) in kinds.SUBMITTED:
        return text
    text += ", with: kubectl apply"
    own = [each.api_version for each in kinds.SUBMITTED if each.kind == kind]
    return text + "".join(f"; or {version} {kind} here" for version in own)


def _nearest(kind: str) -> str:
    """A text with the accepted kinds of this or nearly the same name, else with all accepted
    kinds."""
    accepted = sorted({(each.kind, each.api_version) for each in kinds.SUBMITTED})
    beginning = kind[:MAX_SHOWN_LENGTH]  # comparing a text of megabytes takes seconds
    close = difflib.get_close_matches(beginning, [name for name, _ in accepted], n=1, cutoff=0.8)
    meant = [f"{version} {name}" for name, version in accepted if name in (kind, *close)]
    if meant:
        return f"did you mean {' or '.join(meant)}?"
    return f"one of {', '.join(f'{version} {name}' for name, version in accepted)}"
