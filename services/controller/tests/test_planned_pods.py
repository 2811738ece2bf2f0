"""Which jobs have a plan, and when the controller creates a pod with its node."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from stromboli.controller.core import commands
from stromboli.controller.core.decisions import planned_binds
from stromboli.controller.core.jobs import job_objects, reconcile
from stromboli.controller.core.pods import planned_pods, pods
from stromboli.controller.core.store import (
    admission_configuration,
    controller_cache,
    event_history,
)
from stromboli.shared import keys
from stromboli.shared.api import batch, core, kinds, meta
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import plans, scheduling
from stromboli.testkit import builders

DECISION = "scheduler/3/7"
NOW = datetime(2026, 11, 26, tzinfo=UTC)
NODE = builders.make_node("n1", cpu="8")


def task(replicas: int = 2, **spec: Any) -> batch.TaskSpec:
    task_spec = builders.make_task("w", replicas)
    template = {**msgspec.json.decode(task_spec.template.spec), **spec}
    return msgspec.structs.replace(
        task_spec,
        template=msgspec.structs.replace(
            task_spec.template, spec=msgspec.Raw(msgspec.json.encode(template))
        ),
    )


def job(*tasks: batch.TaskSpec, **more: Any) -> batch.Job:
    status = batch.JobStatus(state=batch.JobState(phase="Pending"), version=more.pop("at", 0))
    return builders.make_job(tasks=list(tasks) or [task()], status=status, **more)


def cache(*objects: meta.Object) -> controller_cache.ControllerCache:
    made = controller_cache.ControllerCache(["volcano"], event_history.EventHistory())
    made.plans.admission = admission_configuration.AdmissionConfiguration()
    for each in objects:
        made.apply(builders.make_record(builders.snapshot_of(each)))
    return made


def answered(requested: commands.PlanPods) -> list[core.Pod]:
    """The dry runs' responses of an API server that changes nothing."""
    return [kinds.PODS.decode(run.body) for run in requested.dry_runs]


def planned(of: controller_cache.ControllerCache, made: batch.Job) -> plans.PodsPlanned:
    """The job's plan, published."""
    requested = planned_pods.request(of, made)
    assert requested is not None
    plan = planned_pods.plan(of, requested, answered(requested))
    assert plan is not None
    of.plans.put(plan.pod_group, plan)
    return plan


# Which jobs


def with_data(*found: batch.DataSet) -> batch.Job:
    made = job()
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, data_sets=found))


def test_planned_pods_have_the_data_sets_of_their_job() -> None:
    """The scheduler reads them from the plan, as from created pods."""
    made = with_data(batch.DataSet(name="a", uri="s3://b/a", mount_path="/a"))
    (planned_task,) = planned(cache(NODE, made), made).tasks
    (request,) = data_sets.requests_of(planned_task.template.metadata.annotations)
    assert request.uri == "s3://b/a"


@pytest.mark.parametrize(
    "data_set",
    [
        batch.DataSet(name="a", persistent_volume_claim="a", mount_path="/a"),
        batch.DataSet(name="a", uri="fluid://default/a", mount_path="/a"),
    ],
    ids=["claim", "Fluid"],
)
def test_a_job_whose_data_set_is_a_claim_has_no_plan(data_set: batch.DataSet) -> None:
    made = with_data(data_set)
    assert not planned_pods.is_wanted(cache(NODE, made), made)


def test_the_plan_waits_until_the_objects_of_plugins_are_recorded() -> None:
    """A pod that is created with a node starts immediately, and needs them."""
    made = job(plugins={"svc": ()})
    known = cache(NODE, made)
    assert job_objects.group_commands(known, made) == ()
    status = msgspec.structs.replace(
        made.status, controlled_resources=job_objects.controlled(known, made)
    )
    ready = msgspec.structs.replace(made, status=status)
    requested, _ = job_objects.group_commands(known, ready)
    assert isinstance(requested, commands.PlanPods)


def kinds_of(plan: commands.Plan) -> list[list[str]]:
    """The commands of each stage: the kind of a created object, else the command's type."""
    return [
        [it.kind.kind if isinstance(it, commands.Create) else type(it).__name__ for it in stage]
        for stage in plan
        if stage
    ]


@pytest.mark.parametrize(
    ("plugins", "objects"),
    [({}, []), ({"svc": ()}, [["Service", "ConfigMap", "NetworkPolicy"]])],
    ids=["no plugin", "svc"],
)
def test_a_new_job_is_planned_and_queued_in_one_reconcile(
    plugins: dict[str, Any], objects: list[list[str]]
) -> None:
    """PodGroup and plan wait for what the pods need, but not for each other, nor for the job's
    status, which the scheduler does not read."""
    made = msgspec.structs.replace(job(plugins=plugins), status=batch.JobStatus())
    known = cache(NODE, made)
    found = kinds_of(reconcile.reconcile(known, made.metadata.key, NOW))
    assert [sorted(stage) for stage in found[:-2]] == [sorted(stage) for stage in objects]
    assert found[-2:] == [["PlanPods", "PodGroup"], ["PatchJobStatus"]]


@pytest.mark.parametrize(
    ("is_planned", "phase", "is_being_created", "follows"),
    [
        (True, None, False, True),
        (True, "Pending", False, True),
        (True, "Inqueue", True, True),
        (True, "Inqueue", False, False),
        (False, "Pending", False, False),
    ],
    ids=["no PodGroup yet", "waits", "pods are being created", "admitted", "no plan"],
)
def test_the_first_status_follows_pods_that_are_created_with_their_nodes(
    phase: str | None, *, is_planned: bool, is_being_created: bool, follows: bool
) -> None:
    """They do not need the status, and its write would compete with theirs. Pods that the job's
    reconcile creates wait for the status, so it must not wait for them."""
    made = msgspec.structs.replace(job(), status=batch.JobStatus())
    known = cache(NODE, made)
    key = pods.group_key(made)
    if is_planned and phase is not None:
        planned(known, made)
    if not is_planned:
        known.plans.admission = None
    if phase is not None:
        group = builders.make_pod_group(key.partition("/")[2], 2, owner=made, phase=phase)
        known.apply(builders.make_record(builders.snapshot_of(group)))
    names = ["j1-w-0"] if is_being_created else []
    with known.plans.reserved(made.metadata.uid, names):
        *_, (write,) = reconcile.reconcile(known, made.metadata.key, NOW)
    assert isinstance(write, commands.PatchJobStatus)
    assert write.can_wait == commands.follows_pods(((write,),)) == follows


def test_the_status_of_a_new_job_names_its_debug_tool_before_the_tool_has_objects() -> None:
    """So it may wait for pods, as that of any other job."""
    made = job()
    requests = {keys.TOOLS: '[{"tool": "terminal"}]'}
    metadata = msgspec.structs.replace(made.metadata, annotations=requests)
    made = msgspec.structs.replace(made, metadata=metadata, status=batch.JobStatus())
    found = reconcile.reconcile(cache(NODE, made), made.metadata.key, NOW)
    (write,) = found[-1]
    assert isinstance(write, commands.PatchJobStatus)
    assert write.status.controlled_resources["tool-terminal"] == ""
    assert write.can_wait
    assert not {"Secret", "Service"} & {it for stage in kinds_of(found) for it in stage}


def test_a_new_job_whose_plan_is_published_gets_its_pod_group() -> None:
    """As after a rejected or lost create of the PodGroup."""
    made = msgspec.structs.replace(job(), status=batch.JobStatus())
    known = cache(NODE, made)
    planned(known, made)
    after = kinds_of(reconcile.reconcile(known, made.metadata.key, NOW))
    assert after == [["PodGroup"], ["PatchJobStatus"]]


CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize(
    "made",
    [
        job(task(volumes=[CLAIM])),
        job(task(volumes=[{"name": "v", "ephemeral": {}}])),
        job(task(resourceClaims=[{"name": "r", "resourceClaimName": "c"}])),
        job(task(schedulingGates=[{"name": "g"}])),
        job(task(nodeName="n1")),
        job(task(planned_pods.MOST_PODS + 1)),
        job(task(0)),
        job(at=1),
        job(volumes=(batch.VolumeSpec(mount_path="/data", volume_claim_name="c"),)),
        job(msgspec.structs.replace(task(), partition_policy=batch.PartitionPolicy())),
        job(msgspec.structs.replace(task(), depends_on=batch.DependsOn(name=("other",)))),
    ],
    ids=[
        "claim",
        "ephemeral volume",
        "resource claim",
        "scheduling gate",
        "node",
        "too many pods",
        "no pods",
        "restarted",
        "volume of the job",
        "partitions",
        "dependencies",
    ],
)
def test_a_job_that_waits_for_more_than_a_node_has_no_plan(made: batch.Job) -> None:
    known = cache(NODE, made)
    (create,) = job_objects.group_commands(known, made)
    assert isinstance(create, commands.Create)


def test_without_the_setting_no_job_has_a_plan() -> None:
    made = job()
    known = cache(NODE, made)
    known.plans.admission = None
    (create,) = job_objects.group_commands(known, made)
    assert isinstance(create, commands.Create)


def test_a_webhook_that_may_change_pods_keeps_a_job_from_having_a_plan() -> None:
    made = job()
    known = cache(NODE, made)
    labels = {"team": "a"}
    spaces = core.LabelSelector(match_labels=labels)
    excluded = admission_configuration.Exclusion(name="inject.example.org", namespaces=spaces)
    known.plans.admission = admission_configuration.AdmissionConfiguration(exclusions=(excluded,))
    (create,) = job_objects.group_commands(known, made)
    assert isinstance(create, commands.Create), "the labels of the namespace are unknown"
    for version, of_namespace in ((5, labels), (6, {"team": "b"})):
        metadata = meta.ObjectMeta(
            name="default", uid="u", resource_version=str(version), labels=of_namespace
        )
        namespace = core.Namespace(metadata=metadata)
        known.apply(builders.make_record(builders.snapshot_of(namespace)))
        found = kinds_of((job_objects.group_commands(known, made),))
        assert found == [["PodGroup"] if of_namespace is labels else ["PlanPods", "PodGroup"]]


def test_a_planned_pod_is_refused_once_annotations_are_not_protected() -> None:
    known, plan = started()
    problem = "there is no policy"
    known.plans.admission = admission_configuration.AdmissionConfiguration(problem=problem)
    assert refusal(known, decided(plan)) == "NotProtected"


def test_a_quota_in_its_namespace_keeps_a_job_from_having_a_plan() -> None:
    made = job()
    quota = core.ResourceQuota(metadata=meta.ObjectMeta(name="q", namespace="default"))
    (create,) = job_objects.group_commands(cache(NODE, made, quota), made)
    assert isinstance(create, commands.Create)


def test_without_nodes_a_job_has_no_plan() -> None:
    made = job()
    (create,) = job_objects.group_commands(cache(made), made)
    assert isinstance(create, commands.Create)


@pytest.mark.parametrize(
    "change",
    [
        {"node_name": "n2"},
        {"scheduling_gates": (core.SchedulingGate(name="g"),)},
    ],
    ids=["another node", "a gate"],
)
def test_an_answer_to_a_dry_run_that_cannot_be_placed_is_no_plan(change: dict[str, Any]) -> None:
    made = job()
    known = cache(NODE, made)
    requested = planned_pods.request(known, made)
    assert requested is not None
    changed = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **change))
        for pod in answered(requested)
    ]
    assert planned_pods.plan(known, requested, changed) is None


def test_a_template_that_the_api_server_changed_after_its_plan_is_not_planned_again() -> None:
    made = job()
    known = cache(NODE, made)
    plan = planned(known, made)
    known.plans.differs(planned_pods.spec_digest(plan.tasks[0].template))
    requested = planned_pods.request(known, made)
    assert requested is not None
    assert planned_pods.plan(known, requested, answered(requested)) is None


def test_a_plan_is_withdrawn_when_its_gang_has_left_the_queue() -> None:
    made = job()
    known = cache(NODE, made)
    plan = planned(known, made)
    assert list(planned_pods.outdated(known, "default/j1", made)) == []
    name = plan.pod_group.partition("/")[2]
    entered = builders.make_pod_group(name, 2, phase="Inqueue", owner=made)
    known.apply(builders.make_record(builders.snapshot_of(entered)))
    with known.plans.reserved(made.metadata.uid, ["j1-w-0"]):
        assert list(planned_pods.outdated(known, "default/j1", made)) == []
    withdrawal = commands.WithdrawPlan(
        pod_group=plan.pod_group, job_uid=made.metadata.uid, version=0
    )
    assert list(planned_pods.outdated(known, "default/j1", made)) == [withdrawal]
    assert list(planned_pods.outdated(known, "default/j1", None)) == [withdrawal]


# Just before each create


def decided(of: plans.PodsPlanned, **bind: Any) -> scheduling.StatementDecided:
    fields = {
        "namespace": "default",
        "pod": "j1-w-0",
        "uid": "",
        "node": "n1",
        "task": "w",
        "plan": of.digest,
        "node_uid": NODE.metadata.uid,
    }
    made = scheduling.Bind(**{**fields, **bind})
    uid = builders.make_pod_group(of.pod_group.partition("/")[2], 2).metadata.uid
    return scheduling.StatementDecided(
        pod_group=of.pod_group, pod_group_uid=uid, job_uid=of.job_uid, session=1, binds=(made,)
    )


def of_uid(uid: str, of: plans.PodsPlanned) -> scheduling.StatementDecided:
    return msgspec.structs.replace(decided(of), pod_group_uid=uid)


def refusal(
    known: controller_cache.ControllerCache, statement: scheduling.StatementDecided
) -> str | None:
    found = planned_binds.job_of(known, statement)
    answer = planned_binds.refusal(known, found, statement, statement.binds[0])
    return None if answer is None else answer.reason


def started(*nodes: core.Node) -> tuple[controller_cache.ControllerCache, plans.PodsPlanned]:
    """A cache with a planned job whose gang was admitted."""
    made = job()
    known = cache(NODE, made)
    plan = planned(known, made)
    group = builders.make_pod_group(plan.pod_group.partition("/")[2], 2, owner=made)
    for each in (group, *nodes):
        known.apply(builders.make_record(builders.snapshot_of(each)))
    return known, plan


def changed_node(**spec: Any) -> core.Node:
    metadata = msgspec.structs.replace(NODE.metadata, resource_version="9")
    return msgspec.structs.replace(NODE, metadata=metadata, spec=core.NodeSpec(**spec))


def test_a_planned_pod_is_created_with_its_node_and_the_id_of_the_decision() -> None:
    known, plan = started()
    statement = decided(plan, annotations={"a": "b"})
    assert refusal(known, statement) is None
    made = planned_binds.job_of(known, statement)
    assert made is not None
    create = planned_binds.creation(known, made, statement.binds[0], DECISION)
    pod = kinds.PODS.decode(create.body)
    assert pod.spec.node_name == "n1"
    assert pod.metadata.annotation(keys.DECISION) == DECISION
    assert pod.metadata.annotation("a") == "b"
    assert planned_pods.is_as_planned(pod, plan.tasks[0])


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (changed_node(unschedulable=True), "NodeChanged"),
        (changed_node(taints=(core.Taint(key="k", effect="NoExecute"),)), "NodeChanged"),
        (changed_node(taints=(core.Taint(key="k", effect="PreferNoSchedule"),)), None),
    ],
    ids=["cordoned", "tainted", "tainted by preference"],
)
def test_a_planned_pod_is_refused_if_its_node_repels_it_now(
    node: core.Node, reason: str | None
) -> None:
    known, plan = started(node)
    assert refusal(known, decided(plan)) == reason


@pytest.mark.parametrize(
    ("bind", "reason"),
    [
        ({"node": "n2"}, "NodeGone"),
        ({"node_uid": "another"}, "NodeGone"),
        ({"plan": "another"}, "PlanReplaced"),
        ({"version": 1}, "PlanReplaced"),
        ({"pod": "j1-w-7", "index": 7}, "JobScaled"),
    ],
    ids=["no node", "another node of the name", "another plan", "another version", "scaled down"],
)
def test_a_planned_pod_is_refused_if_it_was_placed_for_something_else(
    bind: dict[str, Any], reason: str
) -> None:
    known, plan = started()
    assert refusal(known, decided(plan, **bind)) == reason


@pytest.mark.parametrize("phase", ["Aborting", "Restarting", "Completing"])
def test_a_planned_pod_is_refused_if_its_job_stops(phase: str) -> None:
    known, plan = started()
    stopping = batch.JobStatus(state=batch.JobState(phase=phase))
    later = builders.make_job(tasks=[task()], status=stopping, version=9)
    known.apply(builders.make_record(builders.snapshot_of(later)))
    assert refusal(known, decided(plan)) == "JobGone"


def test_a_planned_pod_is_refused_if_its_pod_group_was_replaced() -> None:
    known, plan = started()
    assert refusal(known, of_uid("another", plan)) == "NotAdmitted"


def test_pods_wait_for_an_admission_that_may_be_rejected() -> None:
    known, plan = started()
    assert not planned_binds.waits_for_admission(known, decided(plan))
    assert planned_binds.waits_for_admission(known, of_uid("another", plan)), "deleted or newer"
    known.plans.admission = admission_configuration.AdmissionConfiguration(judges_admissions=True)
    assert planned_binds.waits_for_admission(known, decided(plan))
    known.plans.admission = None
    assert planned_binds.waits_for_admission(known, decided(plan)), "it is unknown what judges it"


def test_only_the_pod_of_this_very_decision_counts_as_created() -> None:
    known, plan = started()
    statement = decided(plan)
    made = planned_binds.job_of(known, statement)
    assert made is not None
    bind = statement.binds[0]
    create = planned_binds.creation(known, made, bind, DECISION)
    pod = kinds.PODS.decode(create.body)
    result = planned_binds.found_result(pod, statement.job_uid, bind, DECISION)
    assert result.result == "executed"
    for other in (
        None,
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n2")),
        kinds.PODS.decode(planned_binds.creation(known, made, bind, "scheduler/3/8").body),
        builders.make_pod("j1-w-0", node="n1", decision=DECISION),
    ):
        refused = planned_binds.found_result(other, statement.job_uid, bind, DECISION)
        assert refused.result == "refused"


def test_the_random_name_of_a_token_volume_is_no_difference_from_the_plan() -> None:
    made = job()
    known = cache(NODE, made)
    requested = planned_pods.request(known, made)
    assert requested is not None

    def served(name: str) -> core.Pod:
        (pod,) = answered(requested)
        spec = msgspec.structs.replace(pod.spec, volumes=(core.Volume(name=name),))
        return msgspec.structs.replace(pod, spec=spec)

    plan = planned_pods.plan(known, requested, [served("kube-api-access-abcde")])
    assert plan is not None
    assert planned_pods.is_as_planned(served("kube-api-access-fghij"), plan.tasks[0])


def test_a_pod_that_requires_more_than_planned_differs_from_its_plan() -> None:
    known, plan = started()
    template = plan.tasks[0].template
    spec = msgspec.structs.replace(template.spec, node_selector={"disk": "ssd"}, node_name="n1")
    assert not planned_pods.is_as_planned(core.Pod(spec=spec), plan.tasks[0])
    assert known.plans.of(plan.pod_group) == plan
