"""Adds pods and PodGroups to the cluster model: as their snapshots show them, with the effects of
open decisions."""

from collections.abc import Iterator
from typing import Any

from stromboli.scheduler.core.cache import claim_cache, pod_plans, quarantine
from stromboli.scheduler.core.cache.in_flight import assume_cache
from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.model import job_builder
from stromboli.shared import snapshot
from stromboli.shared.api import core, kinds, scheduling

KINDS: tuple[kinds.Kind[Any], ...] = (kinds.POD_GROUPS, kinds.PODS)
"""PodGroups first: a pod is then added to its job."""


class GangObjects:
    """Pods and PodGroups as sessions see them. Every method may be repeated.

    ``scheduler_names``: pods of these schedulers are tasks of jobs.
    """

    def __init__(
        self,
        snapshot_view: snapshot.Snapshot,
        isolation: quarantine.Quarantine,
        assumed: assume_cache.AssumeCache,
        plans: pod_plans.PodPlans,
        scheduler_names: tuple[str, ...],
    ) -> None:
        self._shown = snapshot_view
        self._seen = isolation
        self._assumed = assumed
        self._plans = plans
        self._scheduler_names = scheduler_names
        self._last_readable: dict[str, core.Pod] = {}

    def note(self, change: snapshot.Change) -> None:
        """Keep the last readable version of a pod whose newest record cannot be decoded."""
        if not isinstance(change.after, snapshot.Unknown):
            self._last_readable.pop(change.key, None)
        elif isinstance(change.before, core.Pod):
            self._last_readable[change.key] = change.before

    def __iter__(self) -> Iterator[quarantine.Key]:
        """All PodGroups, then all pods."""
        return ((kind, key) for kind in KINDS for key in self._shown.keys(kind))

    def put(self, model: cluster_model.ClusterModel, at: quarantine.Key) -> None:
        """Update the job or the task."""
        if at[0] == kinds.PODS:
            self.put_pod(model, at[1])
        else:
            self.put_group(model, at[1])

    def put_group(self, model: cluster_model.ClusterModel, key: str) -> bool:
        """Update the job from its PodGroup and from open decisions. Returns the result of
        ``freeze``."""
        state = self._seen.state(kinds.POD_GROUPS, key)
        self._plans.expect(key, state)
        match state:
            case scheduling.PodGroup():
                is_enqueued = self._assumed.is_enqueued(key, state.metadata.uid)
                model.put_pod_group(state, is_enqueued=is_enqueued, key=key)
            case snapshot.Unknown(reason=reason):
                model.put_unreadable_pod_group(key, reason)
            case _:
                model.remove_pod_group(key)
        return self.freeze(model, key)

    def freeze(self, model: cluster_model.ClusterModel, key: str) -> bool:
        """Set or clear the reason why sessions may decide nothing about the PodGroup. Returns
        whether the reason changed."""
        reason = self._assumed.undecodable.reason(key) or self._seen.frozen(key)
        has_changed = reason != model.frozen.get(key, "")
        if has_changed:
            model.freeze(key, reason)
        return has_changed

    def put_pod(self, model: cluster_model.ClusterModel, key: str) -> None:
        """Update the task from the pod's snapshot and from open decisions."""
        match self._seen.state(kinds.PODS, key):
            case core.Pod() as current_pod:
                uid = current_pod.metadata.uid
                bind = None if current_pod.spec.node_name else self._assumed.bind_of(key, uid)
                is_evicted = self._assumed.is_evicted(key, uid)
                if bind is None:
                    model.put_pod(current_pod, is_evicted=is_evicted, key=key)
                else:
                    bound = claim_cache.with_annotations(current_pod, bind.annotations)
                    model.put_pod(bound, bind.node, is_evicted=is_evicted, key=key)
            case snapshot.Unknown(reason=reason, node=where):
                pod = self._shown.get(kinds.PODS, key) or self._last_readable.get(key)
                uid = pod.metadata.uid if pod else ""
                node = (
                    where or (pod.spec.node_name if pod else "") or self._assumed.node_of(key, uid)
                )
                is_ours = pod is not None and pod.spec.scheduler_name in self._scheduler_names
                job = job_builder.job_key_of(pod) if pod is not None and is_ours else ""
                model.put_unreadable_pod(key, reason, node, job)
            case _:
                self._plans.show(model, key, self._assumed.bind_of(key))
