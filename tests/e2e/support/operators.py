"""The changes of the cluster while the controller is down: by an operator, kubelets, and
Kubernetes' own controllers.

On the real parts the controllers are Kubernetes'; in embedded mode, where the whole system is down,
the operator makes their changes in the cluster's file.
"""

import asyncio
from typing import Any

import msgspec

from stromboli.embedded.nodes import simulated
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit.real_system import SimulatedNodes
from tests.e2e.support import polling

Document = dict[str, Any]
WITHIN_S = 120.0
SPACE = "default"
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}
"""The taint that Kubernetes' documentation recommends for a node that will not return."""


class Operator:
    """Plain verbs on a cluster, each done when it returns."""

    def __init__(self, cluster: port.Cluster, runner: asyncio.Runner) -> None:
        self._cluster = cluster
        self._runner = runner

    def all(self, kind: kinds.Kind[Any]) -> list[Document]:
        listing = self._runner.run(self._cluster.list(kind))
        return [msgspec.json.decode(raw) for raw in listing.items]

    def owned(self, kind: kinds.Kind[Any], uid: str) -> list[Document]:
        """Those that this one manages."""
        return [
            it
            for it in self.all(kind)
            if any(owner["uid"] == uid for owner in it["metadata"].get("ownerReferences", []))
        ]

    def create(self, kind: kinds.Kind[Any], document: Document) -> Document:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **document}
        space = SPACE if kind.namespaced else ""
        made = self._runner.run(self._cluster.create(kind, space, msgspec.json.encode(body)))
        found: Document = msgspec.json.decode(made)
        return found

    def delete(self, kind: kinds.Kind[Any], name: str, **how: Any) -> None:
        self._runner.run(self._cluster.delete(kind, SPACE, name, **how))

    def report(self, pod: str, phase: str, exit_code: int, reason: str, **more: Any) -> None:
        """The kubelet's word on the end of a pod's container."""
        end = {"exitCode": exit_code, "reason": reason}
        container = {
            **{"name": "main", "image": "busybox", "imageID": "", "restartCount": 0},
            **{"ready": False, "started": False, "state": {"terminated": end}},
        }
        status = {"phase": phase, "containerStatuses": [container], **more}
        self._merge(kinds.PODS, pod, {"status": status}, "status")

    def run(self, kind: kinds.Kind[Any], document: Document, pods: int) -> str:
        """Create an owner of pods; return the uid of the object that manages them when
        they exist.
        """
        raise NotImplementedError

    def lose(self, node: str) -> None:
        """Stop simulating this node's kubelet, so that Kubernetes' own controllers
        evict its pods.
        """
        raise NotImplementedError

    def find(self, node: str) -> None:
        """The node is back."""
        labels, spec = {keys.RUNNER: simulated.RUNNER}, {"taints": None}
        self._merge(kinds.NODES, node, {"metadata": {"labels": labels}, "spec": spec})

    def _silence(self, node: str) -> None:
        labels, spec = {keys.RUNNER: None}, {"taints": [OUT_OF_SERVICE]}
        self._merge(kinds.NODES, node, {"metadata": {"labels": labels}, "spec": spec})

    def _merge(
        self, kind: kinds.Kind[Any], name: str, changes: Document, subresource: Any = ""
    ) -> None:
        space = SPACE if kind.namespaced else ""
        patch = msgspec.json.encode(changes)
        change = self._cluster.patch(
            kind, space, name, patch, patch_type="merge", subresource=subresource
        )
        self._runner.run(change)

    def _pods_on(self, node: str) -> list[Document]:
        return [pod for pod in self.all(kinds.PODS) if pod["spec"].get("nodeName") == node]


class EmbeddedOperator(Operator):
    """Plays Kubernetes' controllers, too."""

    def run(self, kind: kinds.Kind[Any], document: Document, pods: int) -> str:
        owner = self.create(kind, document)
        if kind is kinds.DEPLOYMENTS:
            name = f"{owner['metadata']['name']}-12345"
            annotations = owner["metadata"].get("annotations", {})
            meta = {"name": name, "annotations": annotations, "ownerReferences": [_own(owner)]}
            owner = self.create(kinds.REPLICA_SETS, {"metadata": meta, "spec": document["spec"]})
        template = document["spec"]["template"]
        for index in range(pods):
            name = f"{owner['metadata']['name']}-{index}"
            meta = {**template["metadata"], "name": name, "ownerReferences": [_own(owner)]}
            self.create(kinds.PODS, {"metadata": meta, "spec": template["spec"]})
        uid: str = owner["metadata"]["uid"]
        return uid

    def lose(self, node: str) -> None:
        """As the taint manager gives them up: a condition first, then the deletion."""
        self._silence(node)
        gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        for pod in self._pods_on(node):
            name, conditions = pod["metadata"]["name"], pod["status"].get("conditions", [])
            self._merge(kinds.PODS, name, {"status": {"conditions": [*conditions, gone]}}, "status")
            self.delete(kinds.PODS, name)


class KubernetesOperator(Operator):
    """Where there are controllers one waits for them."""

    def __init__(
        self, cluster: port.Cluster, runner: asyncio.Runner, kubelets: SimulatedNodes
    ) -> None:
        super().__init__(cluster, runner)
        self._kubelets = kubelets

    def run(self, kind: kinds.Kind[Any], document: Document, pods: int) -> str:
        uid: str = self.create(kind, document)["metadata"]["uid"]
        if kind is kinds.DEPLOYMENTS:
            (owner,) = polling.until(
                lambda: self.owned(kinds.REPLICA_SETS, uid), lambda it: len(it) == 1, WITHIN_S
            )
            uid = owner["metadata"]["uid"]
        polling.until(
            lambda: self.owned(kinds.PODS, uid), lambda found: len(found) == pods, WITHIN_S
        )
        return uid

    def lose(self, node: str) -> None:
        self._runner.run(self._kubelets.kill())
        self._silence(node)
        polling.until(
            lambda: self._pods_on(node),
            lambda found: all("deletionTimestamp" in pod["metadata"] for pod in found),
            WITHIN_S,
        )
        self._runner.run(self._kubelets.start())


def _own(owner: Document) -> Document:
    meta = owner["metadata"]
    said = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return {**said, "name": meta["name"], "uid": meta["uid"]}
