"""Finds the gangs about which another configuration would decide differently."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.forecast import expected_starts, run_times
from stromboli.shared.api import scheduling
from stromboli.shared.messages import scheduling as messages


class GangDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What sessions decide about a gang: its queue admits it, pods get nodes, pods are evicted, or
    the reason why it waits. ``binds``: node -> number of pods. ``pods``: pod -> node, for pods that
    exist."""

    is_admitted: bool = False
    binds: Mapping[str, int] = {}
    pods: Mapping[str, str] = {}
    evictions: tuple[str, ...] = ()
    tier: str = ""
    reason: str = ""


class Difference(msgspec.Struct, frozen=True):
    """A gang about which two configurations decide differently. ``job``: the key of the job that
    owns the PodGroup; empty without one."""

    pod_group: str
    present: GangDecision
    changed: GangDecision
    job: str = ""


NOTHING = GangDecision()
_LONG_S = 1e9


def present_decisions(
    cluster: cluster_objects.Cluster, options: expected_starts.Options
) -> dict[str, GangDecision]:
    """What is decided now and in the sessions that follow immediately: an admitted gang gets its
    pods, which are then placed. Gang -> decision, for each gang that waits or has a decision. Pods
    that do not exist yet are counted by node and have no names."""
    no_ends = [0.5] * len(cluster.pod_groups)
    forecast_result = expected_starts.Forecast(cluster, options, _never_ends, no_ends).decide_now()
    existing = {each.metadata.key for each in cluster.pods}
    decided = {
        key: _with_pods(decision, existing)
        for key, decision in of_statements(forecast_result.statements).items()
    }
    for key, (tier, reason) in forecast_result.waiting.items():
        decided[key] = msgspec.structs.replace(decided.get(key, NOTHING), tier=tier, reason=reason)
    return decided


def _with_pods(decision: GangDecision, existing: Collection[str]) -> GangDecision:
    pods = {pod: node for pod, node in decision.pods.items() if pod in existing}
    return msgspec.structs.replace(decision, pods=pods)


def jobs_of(pod_groups: Iterable[scheduling.PodGroup]) -> dict[str, str]:
    """PodGroup -> job, for each PodGroup that a job owns."""
    owners = {}
    for each in pod_groups:
        owner = each.metadata.controller
        if owner is not None and owner.kind == "Job":
            owners[each.metadata.key] = f"{each.metadata.namespace}/{owner.name}"
    return owners


def jobs_of_statements(statements: Iterable[messages.StatementDecided]) -> dict[str, str]:
    """PodGroup -> job, for each PodGroup whose name consists of a job's name and uid."""
    return {
        each.pod_group: each.pod_group.removesuffix(f"-{each.job_uid}")
        for each in statements
        if each.job_uid and each.pod_group.endswith(f"-{each.job_uid}")
    }


def _never_ends(job: run_times.JobTraits, elapsed_s: float, part: float) -> float:
    """The run time of a job that never ends, since no time passes."""
    del job, elapsed_s, part
    return _LONG_S


def of_statements(statements: Iterable[messages.StatementDecided]) -> dict[str, GangDecision]:
    """Gang -> what the statements of one or more sessions decide about it."""
    by_gang: dict[str, list[messages.StatementDecided]] = {}
    for each in statements:
        by_gang.setdefault(each.pod_group, []).append(each)
    return {key: _decision(gang_statements) for key, gang_statements in by_gang.items()}


def _decision(statements: Iterable[messages.StatementDecided]) -> GangDecision:
    gang_statements = list(statements)
    binds = [bind for each in gang_statements for bind in each.binds]
    evictions = sorted(
        f"{it.namespace}/{it.pod}" for each in gang_statements for it in each.evictions
    )
    return GangDecision(
        is_admitted=any(each.enqueue for each in gang_statements),
        binds=dict(sorted(Counter(bind.node for bind in binds).items())),
        pods={f"{bind.namespace}/{bind.pod}": bind.node for bind in binds},
        evictions=tuple(evictions),
    )


def differences(
    present: Mapping[str, GangDecision],
    changed: Mapping[str, GangDecision],
    jobs: Mapping[str, str],
) -> list[Difference]:
    """The gangs whose decisions differ, by key. ``jobs``: PodGroup -> job. Of the reasons only the
    tiers are compared, because numbers in the texts often differ."""
    return [
        Difference(key, here, there, jobs.get(key, ""))
        for key in sorted(present.keys() | changed.keys())
        if _compared(here := present.get(key, NOTHING))
        != _compared(there := changed.get(key, NOTHING))
    ]


def _compared(decision: GangDecision) -> GangDecision:
    return msgspec.structs.replace(decision, reason="")
