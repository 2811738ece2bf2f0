"""Pods as an API server with the default admission plugins returns them.

A client sends a short pod. The response contains the defaults of all fields, tolerations of
unreachable nodes (DefaultTolerationSeconds), the priority (Priority), and a volume with a random
name for the token of its service account (ServiceAccount). Tests and benchmarks with hand-built
pods lack these fields, so their cost in time and memory can only be measured with these pods.
"""

import hashlib
from typing import Any

import msgspec

from stromboli.shared.api import core, kinds

TOKEN_VOLUME = "kube-api-access-"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TOLERATED = ("not-ready", "unreachable")


def served_pod(pod: core.Pod, *, with_token: bool = True) -> core.Pod:
    """The pod as a watch sends it, decoded into the system's types."""
    return kinds.PODS.decode(msgspec.json.encode(document(pod, with_token=with_token)))


def document(pod: core.Pod, *, with_token: bool = True) -> dict[str, Any]:
    """The pod as JSON of the API server. ``with_token``: the admission plugin ServiceAccount is
    enabled."""
    found: dict[str, Any] = msgspec.to_builtins(pod)
    token = TOKEN_VOLUME + _random(pod.metadata.uid)
    spec: dict[str, Any] = found.setdefault("spec", {})
    spec["containers"] = [
        _container(each, token if with_token else "") for each in spec.get("containers", ())
    ]
    if "initContainers" in spec:
        spec["initContainers"] = [
            _container(each, token if with_token else "") for each in spec["initContainers"]
        ]
    if with_token:
        spec["volumes"] = [*spec.get("volumes", ()), _token_volume(token)]
    spec["tolerations"] = [
        *spec.get("tolerations", ()),
        *(
            {
                "key": f"node.kubernetes.io/{name}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for name in _TOLERATED
        ),
    ]
    usual = {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
    }
    found["spec"] = usual | spec
    found["status"] = {"phase": "Pending", "qosClass": "Burstable"} | found.get("status", {})
    return {"apiVersion": "v1", "kind": "Pod"} | found


def _container(given: dict[str, Any], token: str) -> dict[str, Any]:
    usual = {
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    if not token:
        return usual | given
    mount = {
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "name": token,
        "readOnly": True,
    }
    return usual | given | {"volumeMounts": [*given.get("volumeMounts", ()), mount]}


def _token_volume(name: str) -> dict[str, Any]:
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {
            "configMap": {
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                "name": "kube-root-ca.crt",
            }
        },
        {
            "downwardAPI": {
                "items": [
                    {
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        "path": "namespace",
                    }
                ]
            }
        },
    ]
    return {"name": name, "projected": {"defaultMode": 420, "sources": sources}}


def _random(seed: str) -> str:
    """Five characters like those of generated names, the same for the same seed."""
    drawn = hashlib.blake2b(seed.encode(), digest_size=5).digest()
    return "".join(_ALPHABET[each % len(_ALPHABET)] for each in drawn)
