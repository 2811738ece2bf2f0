"""Changes while the controller is down are handled once and according to the job's policies.

Containers end, a node is lost, unmanaged pods appear, all while the controller is down. The
scenarios run in embedded mode, with fault injection and on the real parts, where Kubernetes' own
controllers create and end pods. The controller is killed twice, so that restarted jobs are
interrupted, too; each test checks the end of one job.
"""

import contextlib
import functools
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
import pytest

from stromboli.scheduler.core.config import config_reader
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from tests.e2e.conftest import System, configured
from tests.e2e.support.operators import Operator
from tests.e2e.support.rest_user import LONG_S, Document, User, job, queue

pytestmark = pytest.mark.timeout(300)  # starting the real parts counts, on a busy machine, too
PREEMPTION_NOTICE_S = 5
MOST_OF_A_NODE = "2100m"
"""Of its 4 CPUs: two such pods do not fit, and others may be there."""
OOM = (137, "OOMKilled")
LIMITS = {"name": "eviction-limits"}
PREEMPTING = {
    "actions": "enqueue, allocate, preempt, backfill",
    "tiers": [
        {"plugins": [*tier["plugins"], LIMITS]} for tier in config_reader.DEFAULT["tiers"][:1]
    ]
    + config_reader.DEFAULT["tiers"][1:],
}
URGENT = {
    "apiVersion": kinds.PRIORITY_CLASSES.api_version,
    "kind": kinds.PRIORITY_CLASSES.kind,
    "metadata": {"name": "c-urgent"},
    "value": 1000,
}
OWNERS = {
    "c-web": kinds.DEPLOYMENTS,
    "c-store": kinds.STATEFUL_SETS,
    "c-convert": kinds.KUBERNETES_JOBS,
}


class ObservedBefore(msgspec.Struct):
    """The state before a kill, to compare with the state at the end."""

    user: User
    uids: dict[str, str] = {}
    """Pod or claim -> its uid."""
    owners: dict[str, str] = {}
    """Pods' owner -> its uid."""
    pods: dict[str, list[Document]] = {}
    groups: dict[str, list[Document]] = {}
    """Pods' owner -> its pods as they ran, and its PodGroups."""
    ends_at: str = ""
    """The announced end of the preempted pod."""
    lost: str = ""
    """The node that is lost."""


# The jobs


def spread_over(nodes: list[str], made: Document, cpu: str = "100m") -> Document:
    """All tasks on some nodes, with this number of CPUs per pod."""
    for task in made["spec"]["tasks"]:
        task["template"]["spec"] |= pinned(nodes, cpu)
    return made


def pinned(nodes: list[str], cpu: str = "100m") -> Document:
    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "containers": [container],
    }


def out_of_memory() -> Document:
    """Twice by itself, with a pause; after that as any failure."""
    again = {"event": "OOMKilled", "action": "RestartPod", "maxRetries": 1, "backoff": "2s"}
    other = {"exitCode": 3, "action": "RestartPod", "maxRetries": 1}
    last = {"event": "PodFailed", "action": "TerminateJob"}
    return job("c-memory", LONG_S, policies=[again, other, last])


def partitioned() -> Document:
    """Two partitions of two pods, of which three need to succeed."""
    policy = {"event": "PodFailed", "action": "RestartPartition"}
    made = job("c-parts", LONG_S, pods=4, minSuccess=3, minAvailable=2, policies=[policy])
    parts = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    made["spec"]["tasks"][0]["partitionPolicy"] = parts
    return made


def with_volume() -> Document:
    """A claim with a class without provisioner: an existing volume is found for it."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "c-disk",
    }
    volumes = [{"mountPath": "/data", "volumeClaim": claim}]
    policy = {"event": "PodFailed", "action": "RestartJob"}
    return job("c-disk", LONG_S, volumes=volumes, policies=[policy])


def with_lost_pod(safe: list[str], risky: list[str]) -> Document:
    """One pod stays where it is, and one is on a node that will be lost."""
    policy = {"event": "NodeLost", "action": "RestartPod", "maxRetries": 1}
    made = spread_over(safe, job("c-lost", LONG_S, policies=[policy]))
    (first,) = made["spec"]["tasks"]
    (second,) = spread_over(risky, job("", LONG_S))["spec"]["tasks"]
    made["spec"]["tasks"] = [{**first, "name": "stays"}, {**second, "name": "goes"}]
    return made


def preempted() -> Document:
    policy = {"event": "Preempted", "action": "RestartTask", "maxRetries": 1}
    made = job("c-victim", LONG_S, queue="c-fair", policies=[policy])
    made["metadata"]["annotations"] = {keys.EVICTION_NOTICE: f"{PREEMPTION_NOTICE_S}s"}
    return made


def workload(name: str, nodes: list[str]) -> Document:
    """Two pods that start together or not at all, in the queue of their label."""
    labels = {"app": name, keys.QUEUE_NAME: "c-others"}
    kind = OWNERS[name]
    ends = kind is kinds.KUBERNETES_JOBS
    pod = {
        **pinned(nodes),
        "schedulerName": "volcano",
        "restartPolicy": "Never" if ends else "Always",
    }
    annotations = {keys.RUN_SECONDS: "0.2" if ends else str(LONG_S)}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}
    spec: Document = {"template": template}
    if ends:
        spec |= {"parallelism": 2, "completions": 2}
    else:
        spec |= {"replicas": 2, "selector": {"matchLabels": {"app": name}}}
    if kind is kinds.STATEFUL_SETS:
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    meta = {"name": name, "annotations": {keys.GROUP_MIN_MEMBER: "2"}}
    return {"metadata": meta, "spec": spec}


# The story


@pytest.fixture(scope="module")
def observed(system: System) -> Iterator[ObservedBefore]:
    """After both kills."""
    with contextlib.ExitStack() as stack:
        configured(system.configuration, PREEMPTING)
        stack.callback(configured, system.configuration, config_reader.DEFAULT)
        user = stack.enter_context(contextlib.closing(User(system.url)))
        observed = ObservedBefore(user)
        nodes = user.nodes()
        submit_and_run(observed, nodes)
        with system.without_controller() as operator:
            during_first_absence(operator, observed, nodes)
        check_between_absences(observed)
        with system.without_controller() as operator:
            during_second_absence(operator, observed)
        yield observed
        for name in jobs(user):
            user.delete(name)
        user.until(
            lambda: jobs(user), lambda left: left == []
        )  # the next leader starts from the log


def submit_and_run(observed: ObservedBefore, nodes: list[str]) -> None:
    user, (quiet, fought_for, *risky) = observed.user, nodes
    user.apply(URGENT, queue("c-others"))
    fair = queue("c-fair")
    fair["metadata"]["annotations"] = {keys.EVICTION_NOTICE_LIMIT: f"{PREEMPTION_NOTICE_S}s"}
    user.apply(fair)
    user.submit(
        spread_over([quiet], out_of_memory()),
        spread_over([quiet], partitioned()),
        spread_over([quiet], with_volume()),
        with_lost_pod([quiet], risky),
        spread_over([fought_for], preempted(), cpu=MOST_OF_A_NODE),
    )
    for name, pods in (("c-memory", 1), ("c-parts", 4), ("c-lost", 2), ("c-victim", 1)):
        user.until(
            lambda name=name: running(user, name),  # type: ignore[misc]  # mypy and defaults
            lambda phases, pods=pods: phases == ["Running"] * pods,  # type: ignore[misc]  # as above
        )
    for name in ("c-parts", "c-lost"):
        observed.uids |= {pod["metadata"]["name"]: uid(pod) for pod in user.pods(name)}
    (lost,) = (pod for pod in user.pods("c-lost") if "goes" in pod["metadata"]["name"])
    observed.lost = lost["spec"]["nodeName"]
    urgent = job("c-urgent", LONG_S, queue="c-fair", priorityClassName="c-urgent")
    before = runtime.utc_now()
    user.submit(spread_over([fought_for], urgent, cpu=MOST_OF_A_NODE))
    (victim,) = user.until(lambda: user.pods("c-victim"), reports_preemption)
    observed.ends_at = reported_end(victim)
    assert datetime.fromisoformat(observed.ends_at) >= before + timedelta(
        seconds=PREEMPTION_NOTICE_S
    )
    observed.uids["c-victim"] = uid(victim)


def during_first_absence(operator: Operator, observed: ObservedBefore, nodes: list[str]) -> None:
    operator.report("c-memory-work-0", "Failed", *OOM)
    operator.report("c-parts-work-3", "Failed", 1, "Error")
    (claim,) = claims(operator)
    observed.uids["claim"] = uid(claim)
    if claim["status"].get("phase") != "Bound":
        operator.create(kinds.PERSISTENT_VOLUMES, disk(claim["metadata"]["name"]))
    operator.lose(observed.lost)
    for name, kind in OWNERS.items():
        owner = observed.owners[name] = operator.run(kind, workload(name, nodes[:1]), pods=2)
        pods = operator.owned(kinds.PODS, owner)
        observed.uids |= {pod["metadata"]["name"]: uid(pod) for pod in pods}
        assert operator.owned(kinds.POD_GROUPS, owner) == []


def check_between_absences(observed: ObservedBefore) -> None:
    """What happened was seen, and its answer is under way."""
    user = observed.user
    user.until(lambda: attempts_of(user.pods("c-memory")), lambda it: it == ["2"])
    user.until(
        lambda: attempts_of(user.pods("c-parts")),
        lambda it: it == ["1", "1", "2", "2"],
    )
    for name in ("c-memory", "c-parts", "c-disk", "c-urgent"):
        user.until(lambda name=name: running(user, name), all_run)  # type: ignore[misc]  # mypy and defaults
    user.until(lambda: user.status("c-lost").get("policyRetries", {}), lambda it: it == {"/0": 1})
    for name, owner in observed.owners.items():
        end = "Succeeded" if OWNERS[name] is kinds.KUBERNETES_JOBS else "Running"
        observed.pods[name] = user.until(
            lambda owner=owner: user.owned("pods", owner),  # type: ignore[misc]  # mypy and defaults
            lambda found, end=end: [pod["status"]["phase"] for pod in found] == [end] * 2,  # type: ignore[misc]  # as above
        )
        observed.groups[name] = user.owned("podgroups", owner)


def during_second_absence(operator: Operator, observed: ObservedBefore) -> None:
    operator.report("c-memory-work-0", "Failed", *OOM)
    for index in (0, 1, 2):
        operator.report(f"c-parts-work-{index}", "Succeeded", 0, "Completed")
    (claim,) = claims(operator)
    assert uid(claim) == observed.uids["claim"]
    operator.report("c-disk-work-0", "Failed", 1, "Error")
    operator.report("c-urgent-work-0", "Succeeded", 0, "Completed")
    operator.delete(kinds.PODS, "c-lost-goes-0", grace_seconds=0)
    operator.find(observed.lost)
    for name, kind in OWNERS.items():
        operator.delete(kind, name, propagation="Background")


def claims(operator: Operator) -> list[Document]:
    """Of the job on a disk."""
    every = operator.all(kinds.PERSISTENT_VOLUME_CLAIMS)
    return [it for it in every if it["metadata"]["name"].startswith("c-disk-")]


def disk(claim: str) -> Document:
    """Kept for this claim."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c-disk",
        "hostPath": {"path": "/tmp"},
        "claimRef": {"namespace": "default", "name": claim},
    }
    return {"metadata": {"name": "c-disk"}, "spec": spec}


# Assertions


def jobs(user: User) -> list[str]:
    """Those of these stories."""
    return [name for name in user.names() if name.startswith("c-")]


def uid(found: Document) -> str:
    text: str = found["metadata"]["uid"]
    return text


def reported_end(pod: Document) -> str:
    text: str = pod["metadata"]["annotations"].get(keys.EVICTED_AT, "")
    return text


def reports_preemption(pods: list[Document]) -> bool:
    return pods != [] and reported_end(pods[0]) != ""


def attempts_of(pods: list[Document]) -> list[str]:
    """By the pods' names."""
    ordered = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    return [pod["metadata"]["annotations"][keys.ATTEMPT] for pod in ordered]


def running(user: User, name: str) -> list[str]:
    """Phases of a job's pods, once it has any."""
    return [pod["status"].get("phase", "") for pod in user.pods(name)]


def all_run(phases: list[str]) -> bool:
    return phases != [] and set(phases) == {"Running"}


def history(user: User, name: str, wanted: list[tuple[str, int, int, str, str]]) -> list[Document]:
    """The attempts as task, index, attempt, state and reason, when they are as expected."""
    found: list[Document] = user.until(
        lambda: user.get(name, "/tasks?history")["tasks"],
        lambda tasks: [it["state"] for it in tasks] == [state for *_, state, _ in wanted],
    )
    fields = ("task", "index", "attempt", "state", "reason")
    assert [tuple(it[field] for field in fields) for it in found] == wanted
    return found


def created_after(attempt: Document, moment: datetime) -> bool:
    """A pod that was bound before the controller looked has its object's time: whole seconds."""
    return datetime.fromisoformat(attempt["createdAt"]) >= moment.replace(microsecond=0)


# Results


def test_a_preempted_pod_ends_after_its_notice_and_its_task_is_retried(
    observed: ObservedBefore,
) -> None:
    """The controller was killed between the notice and the end."""
    user = observed.user
    user.comes_to("c-urgent", "Completed")
    user.until(lambda: running(user, "c-victim"), all_run)
    wanted = [("work", 0, 1, "Gone", "Preempted"), ("work", 0, 2, "Running", "")]
    first, second = history(user, "c-victim", wanted)
    assert first["podUid"] == observed.uids["c-victim"]
    reported = datetime.fromisoformat(observed.ends_at)
    # The monitor may read the pod only before its deletion and after its end.
    ended = first["terminatingAt"] or first["endedAt"]
    assert datetime.fromisoformat(ended) >= reported
    assert created_after(second, reported)
    status = user.status("c-victim")
    assert (status["retryCount"], status["policyRetries"]) == (1, {"/0": 1})


def test_a_pod_of_a_lost_node_is_retried_and_the_other_keeps_running(
    observed: ObservedBefore,
) -> None:
    user = observed.user
    user.until(lambda: running(user, "c-lost"), lambda it: it == ["Running"] * 2)
    wanted = [
        ("goes", 0, 1, "Gone", "NodeLost"),
        ("goes", 0, 2, "Running", ""),
        ("stays", 0, 1, "Running", ""),
    ]
    lost, _, stays = history(user, "c-lost", wanted)
    assert (lost["node"], lost["podUid"]) == (observed.lost, observed.uids["c-lost-goes-0"])
    assert stays["podUid"] == observed.uids["c-lost-stays-0"]
    status = user.status("c-lost")
    assert (status["retryCount"], status["policyRetries"]) == (1, {"/0": 1})
    assert "version" not in status, "no run of the whole job ended"


def test_out_of_memory_has_a_separate_retry_budget_and_backoff(observed: ObservedBefore) -> None:
    """The second time it is dealt with as any failure; the budget of others was not touched."""
    user = observed.user
    status = user.comes_to("c-memory", "Terminated")
    assert (status["retryCount"], status["policyRetries"]) == (1, {"/0": 1, "/2": 1})
    wanted = [("work", 0, n, "Failed", "OOMKilled") for n in (1, 2)]
    first, second = history(user, "c-memory", wanted)
    assert created_after(second, datetime.fromisoformat(first["endedAt"]) + timedelta(seconds=2))
    assert [first["exitCode"], second["exitCode"]] == [OOM[0]] * 2


def test_a_partition_restarts_as_a_unit_and_enough_successful_ones_complete_the_job(
    observed: ObservedBefore,
) -> None:
    user = observed.user
    status = user.comes_to("c-parts", "Completed")
    assert (status["succeeded"], status["retryCount"], "version" in status) == (3, 1, False)
    wanted = [
        ("work", 0, 1, "Succeeded", ""),
        ("work", 1, 1, "Succeeded", ""),
        ("work", 2, 1, "Gone", "RestartPartition"),
        ("work", 2, 2, "Succeeded", ""),
        ("work", 3, 1, "Failed", "Error"),
        ("work", 3, 2, "Gone", "JobCompleted"),
    ]
    tasks = history(user, "c-parts", wanted)
    before = {it["pod"]: it["podUid"] for it in tasks if it["attempt"] == 1}
    assert before.items() <= observed.uids.items()


def test_a_restarted_job_keeps_its_volume_claim(observed: ObservedBefore) -> None:
    user = observed.user
    user.until(lambda: user.status("c-disk").get("version"), lambda it: it == 1)
    user.until(lambda: running(user, "c-disk"), all_run)
    (pod,) = user.pods("c-disk")
    volumes = pod["spec"]["volumes"]
    claims = [it["persistentVolumeClaim"] for it in volumes if "persistentVolumeClaim" in it]
    mounted = [claim["claimName"] for claim in claims]
    (volume,) = user.get("c-disk")["spec"]["volumes"]
    assert mounted == [volume["volumeClaimName"]]
    resources = user.status("c-disk")["controlledResources"]
    assert resources == {f"volume-pvc-{mounted[0]}": mounted[0]}
    wanted = [("work", 0, 1, "Failed", "Error"), ("work", 0, 2, "Running", "")]
    history(user, "c-disk", wanted)


@pytest.mark.parametrize("name", OWNERS)
def test_pods_created_while_the_controller_was_down_get_one_pod_group(
    observed: ObservedBefore, name: str
) -> None:
    """No pod is created or deleted for it; the PodGroup is deleted with the pods, also while the
    controller is down.
    """
    owner, pods = observed.owners[name], observed.pods[name]
    assert {pod["metadata"]["name"]: uid(pod) for pod in pods}.items() <= observed.uids.items()
    (group,) = observed.groups[name]
    reported = {pod["metadata"]["annotations"][keys.GROUP_NAME] for pod in pods}
    assert reported == {group["metadata"]["name"]} == {f"podgroup-{owner}"}
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (2, "c-others")
    for plural in ("pods", "podgroups"):
        gone = functools.partial(observed.user.owned, plural, owner)
        observed.user.until(gone, lambda found: found == [])
