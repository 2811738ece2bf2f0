"""Rules for jobs at admission: each with a job that passes and one that is rejected."""

import copy
from typing import Any

import msgspec
import pytest

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.meta import ObjectMeta
from stromboli.shared.api.scheduling import Queue, QueueSpec, QueueStatus
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review
from stromboli.shared.jobspec.validation.queueing import permissions

POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano", "stromboli"), plugins=job_plugins.BUILT_IN, max_queue_depth=5
)
Document = dict[str, Any]


def queue(name: str, parent: str = "", state: str = "Open") -> Queue:
    return Queue(
        metadata=ObjectMeta(name=name),
        spec=QueueSpec(parent=parent),
        status=QueueStatus(state=state),
    )


QUEUES = {
    made.metadata.name: made
    for made in (
        queue("default"),
        queue("root"),
        queue("closed", state="Closed"),
        queue("parent"),
        queue("child", parent="parent"),
        queue("fresh", state=""),
    )
}

KNOWN = review.ClusterContext(queues=QUEUES)


def job(**spec: Any) -> Document:
    task = {
        "name": "work",
        "replicas": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"tasks": [task], **spec},
    }


def task(**changes: Any) -> Document:
    return {**job()["spec"]["tasks"][0], **changes}


def complete(document: Document) -> Document:
    return patch.applied(document, review.default_patch(kinds.JOBS, document, POLICY, ""))


def refused(document: Document) -> dict[str, str]:
    """Path -> reason of all violations of the completed document."""
    violations = review.violations(kinds.JOBS, "CREATE", complete(document), None, KNOWN, POLICY)
    return {violation.path: violation.reason for violation in violations}


def test_a_plain_job_passes() -> None:
    assert refused(job()) == {}


def test_a_job_may_use_the_default_queue_before_the_controller_creates_it() -> None:
    """At the very first start admission serves a moment before the controller has created it."""
    first = review.ClusterContext(queues={})
    completed = complete(job(queue=""))
    assert list(review.violations(kinds.JOBS, "CREATE", completed, None, first, POLICY)) == []


def test_a_new_job_is_completed_with_all_defaults() -> None:
    tasks = [task(name=""), task(name="b", replicas=3)]
    spec = complete(job(queue="", maxRetry=0, tasks=tasks))["spec"]
    assert spec["queue"] == "default"
    assert spec["schedulerName"] == "volcano"
    assert spec["maxRetry"] == 3
    assert spec["minAvailable"] == 5
    assert [t["name"] for t in spec["tasks"]] == ["default0", "b"]
    assert [t["minAvailable"] for t in spec["tasks"]] == [2, 3]
    assert [t["maxRetry"] for t in spec["tasks"]] == [3, 3]


def test_a_negative_number_of_replicas_is_one_violation() -> None:
    """No violations are reported for fields that the user did not set and that have defaults
    derived from it.
    """
    wrong = job(tasks=[task(replicas=-1)])
    assert list(refused(wrong)) == ["spec.tasks[0].replicas"]
    assert "minAvailable" not in complete(wrong)["spec"]["tasks"][0]


def test_values_of_the_user_are_kept() -> None:
    written = job(queue="fresh", schedulerName="stromboli", maxRetry=7, minAvailable=1)
    spec = complete(written)["spec"]
    assert {
        name: spec[name] for name in ("queue", "schedulerName", "maxRetry", "minAvailable")
    } == {
        "queue": "fresh",
        "schedulerName": "stromboli",
        "maxRetry": 7,
        "minAvailable": 1,
    }


def test_defaulting_does_not_change_the_submitted_object() -> None:
    submitted = job()
    before = copy.deepcopy(submitted)
    complete(submitted)
    assert submitted == before


def test_min_available_of_a_partitioned_task_is_its_minimal_partitions() -> None:
    partition = {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}
    spec = complete(job(tasks=[task(replicas=8, partitionPolicy=partition)]))["spec"]
    assert spec["tasks"][0]["minAvailable"] == 6
    assert spec["minAvailable"] == 6


def test_host_network_gets_the_dns_policy_of_the_cluster() -> None:
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i"}]}}
    spec = complete(job(tasks=[task(template=template)]))["spec"]
    assert spec["tasks"][0]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_plugins_bring_the_plugins_they_need() -> None:
    spec = complete(job(plugins={"mpi": ["--master=work"]}))["spec"]
    assert spec["plugins"] == {"mpi": ["--master=work"], "svc": [], "ssh": []}


def test_the_trace_of_the_submission_is_written_on_the_job() -> None:
    additions = review.default_patch(kinds.JOBS, job(), POLICY, "00-ab-cd-01")
    annotations = patch.applied(job(), additions)["metadata"]["annotations"]
    assert annotations == {keys.TRACEPARENT: "00-ab-cd-01"}


def test_a_job_of_another_scheduler_passes_untouched() -> None:
    foreign = job(schedulerName="other", queue="nowhere", minAvailable=99)
    assert review.default_patch(kinds.JOBS, foreign, POLICY, "") == ()
    assert refused(foreign) == {}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        pytest.param(job(tasks=[]), "spec.tasks", id="no-task"),
        pytest.param(job(minAvailble=1), "spec.minAvailble", id="unknown-field"),
        pytest.param(job(minAvailable="two"), "spec.minAvailable", id="wrong-type"),
        pytest.param(job(minAvailable=3), "spec.minAvailable", id="above-the-sum"),
        pytest.param(
            job(tasks=[task(minAvailable=3)]),
            "spec.tasks[0].minAvailable",
            id="task-above-its-replicas",
        ),
        pytest.param(job(tasks=[task(), task()]), "spec.tasks[1].name", id="duplicate-task"),
        pytest.param(
            job(tasks=[task(name="t" * 60)]), "spec.tasks[0].name", id="pod-name-too-long"
        ),
        pytest.param(job(queue="nowhere"), "spec.queue", id="absent-queue"),
        pytest.param(job(queue="closed"), "spec.queue", id="closed-queue"),
        pytest.param(job(queue="root"), "spec.queue", id="root-queue"),
        pytest.param(job(queue="parent"), "spec.queue", id="queue-with-children"),
        pytest.param(job(plugins={"nonsense": []}), "spec.plugins.nonsense", id="unknown-plugin"),
        pytest.param(job(plugins={"ray": []}), "spec.plugins.ray", id="ray-without-head"),
        pytest.param(job(plugins={"svc": ["loud"]}), "spec.plugins.svc", id="no-argument"),
        pytest.param(job(plugins={"ssh": ["--ssh-port=0"]}), "spec.plugins.ssh", id="no-port"),
        pytest.param(job(plugins={"mpi": []}), "spec.plugins.mpi", id="mpi-without-master"),
        pytest.param(
            job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
            "spec.networkTopology",
            id="both-tiers",
        ),
        pytest.param(
            job(volumes=[{"mountPath": "/d"}]), "spec.volumes[0]", id="volume-without-claim"
        ),
        pytest.param(
            job(volumes=[{"mountPath": "/d", "volumeClaimName": n} for n in ("a", "b")]),
            "spec.volumes[1].mountPath",
            id="path-mounted-twice",
        ),
        pytest.param(
            job(tasks=[task(dependsOn={"name": ["x"]})]),
            "spec.tasks[0].dependsOn.name",
            id="depends-on-nothing",
        ),
        pytest.param(
            job(
                tasks=[
                    task(name="a", dependsOn={"name": ["b"]}),
                    task(name="b", dependsOn={"name": ["a"]}),
                ]
            ),
            "spec.tasks",
            id="dependency-cycle",
        ),
        pytest.param(
            job(
                tasks=[task(replicas=5, partitionPolicy={"totalPartitions": 2, "partitionSize": 2})]
            ),
            "spec.tasks[0].replicas",
            id="replicas-are-not-the-partitions",
        ),
        pytest.param(
            job(tasks=[task(topologyPolicy="restricted")]),
            "spec.tasks[0].topologyPolicy",
            id="topology-without-whole-cpus",
        ),
        pytest.param(
            {**job(), "metadata": {"name": "Train", "namespace": "default"}},
            "metadata.name",
            id="bad-name",
        ),
    ],
)
def test_a_wrong_job_is_refused_with_the_path(document: Document, path: str) -> None:
    assert path in refused(document)


def template(**container: Any) -> Document:
    return {"spec": {"containers": [{"name": "c", "image": "busybox", **container}]}}


DATA: Document = {"name": "data", "emptyDir": {}}
MOUNTS: list[Document] = [{"name": "data", "mountPath": path} for path in ("/data", "/out")]


def pod(mounts: list[Document] | None = None, **spec: Any) -> Document:
    return {"spec": {**template(volumeMounts=mounts or [])["spec"], **spec}}


@pytest.mark.parametrize(
    "made",
    [
        template(imagePullPolicy="Always", ports=[{"containerPort": 8080, "protocol": "TCP"}]),
        template(
            env=[
                {"name": "my.own-NAME_1", "value": "1"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ]
        ),
        pod(MOUNTS, volumes=[DATA], initContainers=[{"name": "first", "image": "i"}]),
        template(
            resources={
                "requests": {"cpu": "1", "nvidia.com/gpu": "1"},
                "limits": {"nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi", "memory": "1Gi"},
            }
        ),
        pod(nodeSelector={"node.kubernetes.io/instance-type": "p4d.24xlarge", "gpu": ""}),
        pod(
            tolerations=[
                {"operator": "Exists"},
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "team", "value": "a", "effect": "NoExecute", "tolerationSeconds": 5},
            ]
        ),
        {
            **template(),
            "metadata": {
                "labels": {"app.kubernetes.io/name": "train", "run": "Exp_7.b"},
                "annotations": {"Example.com/Notes": "whatever {} stands here"},
            },
        },
    ],
    ids=["pull", "environment", "volumes", "devices", "selector", "tolerations", "metadata"],
)
def test_a_template_that_an_api_server_accepts_passes(made: Document) -> None:
    assert not refused(job(tasks=[task(template=made)]))


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"labels": {"my app": "x"}}, "labels[my app]"),
        ({"labels": {"app": "train/7"}}, "labels[app]"),
        ({"annotations": {"a/b/c": "x"}}, "annotations[a/b/c]"),
    ],
)
def test_a_template_with_names_too_long_for_labels_is_rejected(
    metadata: Document, path: str
) -> None:
    made = {**template(), "metadata": metadata}
    assert list(refused(job(tasks=[task(template=made)]))) == [
        f"spec.tasks[0].template.metadata.{path}"
    ]


@pytest.mark.parametrize(
    ("made", "path"),
    [
        ({"spec": {"containers": []}}, "containers"),
        (template(image=" "), "containers[0].image"),
        (template(name="C"), "containers[0].name"),
        (template(resources={"requests": {"cpu": "12x"}}), "containers[0].resources.requests.cpu"),
        (template(resources={"requests": {"cpu": "-1"}}), "containers[0].resources.requests.cpu"),
        (
            template(resources={"requests": {"nvidia.com/gpu": "500m"}}),
            "containers[0].resources.requests.nvidia.com/gpu",
        ),
        (
            template(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "containers[0].resources.requests.cpu",
        ),
        (
            {"spec": {**template()["spec"], "restartPolicy": "Sometimes"}},
            "restartPolicy",
        ),
        (pod(initContainers=[{"name": "c", "image": "i"}]), "initContainers[0].name"),
        (template(imagePullPolicy="Sometimes"), "containers[0].imagePullPolicy"),
        (template(ports=[{"containerPort": 70000}]), "containers[0].ports[0].containerPort"),
        (template(env=[{"name": "A=B", "value": "c"}]), "containers[0].env[0].name"),
        (template(env=[{"value": "c"}]), "containers[0].env[0].name"),
        (
            template(env=[{"name": "A", "value": "b", "valueFrom": {"fieldRef": {}}}]),
            "containers[0].env[0].valueFrom",
        ),
        (
            template(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
            "containers[0].volumeMounts[0].name",
        ),
        (pod(MOUNTS[:1] * 2, volumes=[DATA]), "containers[0].volumeMounts[1].mountPath"),
        (pod([{"name": "data"}], volumes=[DATA]), "containers[0].volumeMounts[0].mountPath"),
        (pod(volumes=[DATA, DATA]), "volumes[1].name"),
        (pod(volumes=[{"name": "my_data", "emptyDir": {}}]), "volumes[0].name"),
        (
            template(resources={"requests": {"gpu": "1"}, "limits": {"gpu": "1"}}),
            "containers[0].resources.requests.gpu",
        ),
        (
            template(resources={"requests": {"nvidia.com/gpu": "1"}}),
            "containers[0].resources.limits.nvidia.com/gpu",
        ),
        (
            template(
                resources={"requests": {"x.io/gpu": "1"}, "limits": {"x.io/gpu": "2"}},
            ),
            "containers[0].resources.limits.x.io/gpu",
        ),
        (pod(nodeSelector={"gpu model": "a100"}), "nodeSelector[gpu model]"),
        (pod(nodeSelector={"gpu": "a100 or h100"}), "nodeSelector[gpu]"),
        (pod(tolerations=[{"operator": "Exists", "value": "x"}]), "tolerations[0].value"),
        (pod(tolerations=[{"operator": "In", "key": "x"}]), "tolerations[0].operator"),
        (pod(tolerations=[{"value": "x"}]), "tolerations[0].operator"),
        (pod(tolerations=[{"key": "x", "effect": "NoStart"}]), "tolerations[0].effect"),
    ],
)
def test_a_template_that_no_api_server_would_take_is_refused(made: Document, path: str) -> None:
    assert f"spec.tasks[0].template.spec.{path}" in refused(job(tasks=[task(template=made)]))


@pytest.mark.parametrize(
    ("policies", "path"),
    [
        ([{"action": "AbortJob", "event": "PodFailed", "exitCode": 3}], "[0]"),
        ([{"action": "AbortJob"}], "[0]"),
        ([{"action": "AbortJob", "event": "PodRunning"}], "[0].event"),
        ([{"action": "Explode", "event": "PodFailed"}], "[0].action"),
        ([{"action": "Explode", "exitCode": 3}], "[0].action"),
        ([{"action": "AbortJob", "exitCode": 0}], "[0].exitCode"),
        (
            [{"action": "AbortJob", "exitCode": 3}, {"action": "RestartJob", "exitCode": 3}],
            "[1].exitCode",
        ),
        (
            [
                {"action": "AbortJob", "event": "PodFailed"},
                {"action": "RestartJob", "events": ["PodFailed"]},
            ],
            "[1]",
        ),
        (
            [{"action": "AbortJob", "event": "*"}, {"action": "RestartJob", "event": "PodFailed"}],
            "[0]",
        ),
    ],
)
def test_a_wrong_policy_is_refused_in_jobs_and_tasks(policies: list[Document], path: str) -> None:
    assert f"spec.policies{path}" in refused(job(policies=policies))
    assert f"spec.tasks[0].policies{path}" in refused(job(tasks=[task(policies=policies)]))


def test_policies_of_job_and_task_are_independent() -> None:
    policy = [{"action": "RestartJob", "event": "PodFailed"}]
    assert refused(job(policies=policy, tasks=[task(policies=policy)])) == {}


def test_all_violations_are_reported_together() -> None:
    wrong = job(minAvailable=9, queue="nowhere", plugins={"nonsense": []}, minAvailble=1)
    assert {"spec.minAvailable", "spec.queue", "spec.plugins.nonsense", "spec.minAvailble"} <= set(
        refused(wrong)
    )


def update(before: Document, **changes: Any) -> dict[str, str]:
    old = complete(before)
    new = copy.deepcopy(old)
    new["spec"] |= changes
    violations = review.violations(kinds.JOBS, "UPDATE", new, old, KNOWN, POLICY)
    return {violation.path: violation.reason for violation in violations}


def test_a_job_may_be_scaled() -> None:
    tasks = [{**complete(job())["spec"]["tasks"][0], "replicas": 5, "minAvailable": 1}]
    assert update(job(), tasks=tasks, minAvailable=1) == {}


def test_an_update_in_a_closed_queue_is_allowed() -> None:
    assert update(job(queue="closed"), minAvailable=1) == {}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"maxRetry": 9}, "spec.maxRetry"),
        ({"minAvailable": 9}, "spec.minAvailable"),
        ({"tasks": [task(), task(name="b")]}, "spec.tasks"),
    ],
)
def test_immutable_fields_cannot_change(changes: Document, path: str) -> None:
    assert path in update(job(), **changes)


def test_additions_are_a_json_patch() -> None:
    additions = review.default_patch(kinds.JOBS, job(queue=""), POLICY, "")
    encoded = msgspec.json.decode(msgspec.json.encode(additions))
    assert {"op": "add", "path": "/spec/queue", "value": "default"} in encoded


@pytest.mark.parametrize("claimed", [None, {}, {keys.USER: "somebody-else"}])
def test_a_job_records_its_submitter_whatever_it_claims(claimed: dict[str, str] | None) -> None:
    """With the trace beside it."""
    document = job()
    if claimed is not None:
        document["metadata"] = {**document["metadata"], "annotations": claimed}
    made = patch.applied(document, review.default_patch(kinds.JOBS, document, POLICY, "00-a-b-01"))
    ann = review.ClusterContext(requester=permissions.Submitter("ann"))
    made = patch.applied(made, review.submitter_patch(kinds.JOBS, made, None, POLICY, ann))
    made = made["metadata"]["annotations"]
    assert made == {keys.USER: "ann", keys.TRACEPARENT: "00-a-b-01"}


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        ("ann", "ann", False),
        (None, None, False),
        ("ann", "bob", True),
        ("ann", None, True),
        (None, "bob", True),
    ],
)
def test_the_submitter_of_a_job_cannot_change(
    before: str | None, after: str | None, is_refused: bool
) -> None:
    def of(user: str | None) -> Document:
        made = patch.applied(job(), review.default_patch(kinds.JOBS, job(), POLICY))
        return {
            **made,
            "metadata": {**made["metadata"], "annotations": {keys.USER: user} if user else {}},
        }

    violations = review.violations(kinds.JOBS, "UPDATE", of(after), of(before), KNOWN, POLICY)
    assert [each.path for each in violations] == (
        ["metadata.annotations[stromboli.sh/user]"] if is_refused else []
    )


def test_an_array_is_a_gang_only_with_min_available_and_replicas_limit_concurrency() -> None:
    spec = complete(job(array={"indexes": "0-999"}))["spec"]
    assert (spec["minAvailable"], spec["tasks"][0]["minAvailable"]) == (1, 1)
    assert refused(job(array={"indexes": "0-999,2000"})) == {}
    assert refused(job(array={"indexes": "0-9"}, minAvailable=2)) == {}


def test_an_array_has_one_task_a_bound_and_names_that_fit() -> None:
    assert "10001 indexes" in refused(job(array={"indexes": "0-10000"}))["spec.array.indexes"]
    two = job(array={"indexes": "0-9"}, tasks=[task(), task(name="more")])
    assert refused(two) == {"spec.tasks": "an array with 2 tasks"}
    long = job(array={"indexes": "9999"}, tasks=[task(name="t" * 54)])
    assert "which has 65 characters" in refused(long)["spec.tasks[0].name"]


@pytest.mark.parametrize("cause", ["OOMKilled", "NodeLost", "DeadlineExceeded", "Preempted"])
def test_a_policy_may_name_a_cause_with_a_maximum_and_a_backoff(cause: str) -> None:
    policy = {"event": cause, "action": "RestartTask", "maxRetries": 2, "backoff": "30s"}
    assert refused(job(policies=[policy], activeDeadlineSeconds=60)) == {}
    assert refused(job(policies=[{**policy, "backoff": "soon"}])) != {}
