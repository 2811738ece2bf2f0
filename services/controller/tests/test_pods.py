"""Pods, PodGroups and plugins of a job as objects."""

from typing import Any

import msgspec
import pytest

from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.pods import pods
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.jobspec import quota
from stromboli.testkit import builders
from stromboli.testkit.builders import make_container, make_job, make_priority_class, make_task


def pod(job: batch.Job, position: int = 0) -> dict[str, Any]:
    member = list(tasks.Members(job))[position]
    body: dict[str, Any] = msgspec.json.decode(pods.create(job, member).body)
    return body


def group(job: batch.Job, *classes: core.PriorityClass) -> dict[str, Any]:
    cache = controller_cache.ControllerCache(["volcano"], event_history.EventHistory())
    for each in classes:
        cache.apply(builders.make_record(builders.snapshot_of(each)))
    body: dict[str, Any] = msgspec.json.decode(pod_groups.create(cache, job).body)
    return body


def test_a_pod_carries_its_names_as_labels_and_annotations() -> None:
    job = make_job(tasks=[make_task("worker", 2)], queue="q1")
    metadata = pod(job, 1)["metadata"]
    assert metadata["name"] == "j1-worker-1"
    assert metadata["labels"] == {
        keys.TASK_INDEX: "1",
        keys.TASK_SPEC: "worker",
        keys.JOB_NAME: "j1",
        keys.JOB_NAMESPACE: "default",
        keys.QUEUE_NAME: "q1",
    }
    assert metadata["annotations"] == {
        keys.TASK_INDEX: "1",
        keys.TASK_SPEC: "worker",
        keys.GROUP_NAME: "j1-job-default-j1",
        keys.JOB_NAME: "j1",
        keys.QUEUE_NAME: "q1",
        keys.JOB_VERSION: "0",
        keys.JOB_RETRY_COUNT: "0",
        keys.TEMPLATE_UID: "j1-worker",
        keys.ATTEMPT: "1",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "job-default-j1", True)


def test_a_pod_keeps_every_field_of_its_template() -> None:
    given = {"hostPID": True, "somethingNew": {"deep": [1, 2]}, "schedulerName": "mine"}
    spec = pod(make_job(tasks=[make_task(pod_spec=given)]))["spec"]
    assert {name: spec[name] for name in given} == given


def test_scheduler_and_priority_class_default_from_the_job() -> None:
    spec = pod(make_job(scheduler="stromboli", priority_class="high"))["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("stromboli", "high")


def test_what_the_job_reports_about_preemption_and_its_trace_goes_to_the_pods() -> None:
    given = {
        keys.PREEMPTABLE: "true",
        keys.JDB_MAX_UNAVAILABLE: "1",
        keys.TRACEPARENT: "00-aa-bb-01",
        "other": "stays",
    }
    metadata = pod(make_job(annotations=given, labels={keys.COOLDOWN_TIME: "5m"}))["metadata"]
    assert given.items() - metadata["annotations"].items() == {("other", "stays")}
    assert metadata["labels"][keys.COOLDOWN_TIME] == "5m"


def test_a_minimum_budget_wins_over_a_maximum() -> None:
    given = {keys.JDB_MAX_UNAVAILABLE: "1", keys.JDB_MIN_AVAILABLE: "2"}
    annotations = pod(make_job(annotations=given))["metadata"]["annotations"]
    assert keys.JDB_MAX_UNAVAILABLE not in annotations


def test_partitions_and_topology_policy_reach_the_pods() -> None:
    parts = batch.PartitionPolicy(total_partitions=2, partition_size=2)
    task = msgspec.structs.replace(
        make_task(replicas=4), partition_policy=parts, topology_policy="best-effort"
    )
    metadata = pod(make_job(tasks=[task]), 3)["metadata"]
    assert metadata["labels"][keys.PARTITION_ID] == "1"
    assert metadata["annotations"][keys.NUMA_TOPOLOGY_POLICY] == "best-effort"


def test_a_task_without_a_name_is_named_by_its_place() -> None:
    job = make_job(tasks=[make_task(""), make_task("")])
    assert [it.name for it in tasks.Members(job)] == ["j1-default0-0", "j1-default1-0"]


def test_a_claim_is_mounted_once_in_containers_only() -> None:
    volumes = [
        batch.VolumeSpec(mount_path="/data", volume_claim_name="c1"),
        batch.VolumeSpec(mount_path="/again", volume_claim_name="c1"),
    ]
    task = make_task(pod_spec={"initContainers": [{"name": "init"}]})
    job = make_job(tasks=[task])
    job = msgspec.structs.replace(
        job, spec=msgspec.structs.replace(job.spec, volumes=tuple(volumes))
    )
    spec = pod(job)["spec"]
    (volume,) = spec["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "c1"}
    mounts = [{"name": volume["name"], "mountPath": "/data"}]
    assert spec["containers"][0]["volumeMounts"] == mounts
    assert "volumeMounts" not in spec["initContainers"][0]


def test_a_volume_without_any_claim_is_an_obstacle() -> None:
    job = make_job()
    volume = batch.VolumeSpec(mount_path="/data")
    job = msgspec.structs.replace(
        job,
        spec=msgspec.structs.replace(job.spec, volumes=(volume,)),
        status=batch.JobStatus(version=1),
    )
    assert [it.reason for it in pods.blockers(job)] == ["PVCError"]


@pytest.mark.parametrize(
    "spec",
    [{"containers": "none"}, {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}],
    ids=["wrong type", "no quantity"],
)
def test_a_template_that_cannot_be_read_is_an_obstacle(spec: dict[str, Any]) -> None:
    job = make_job(tasks=[make_task(pod_spec=spec)])
    assert "FailedCreate" in [it.reason for it in pods.blockers(job)]


def test_a_pod_group_describes_the_gang() -> None:
    tasks_ = [make_task("ps", 1), make_task("worker", 4, min_available=2)]
    job = make_job(
        tasks=tasks_,
        min_available=3,
        queue="q1",
        priority_class="high",
        annotations={"a": "b", keys.LAST_APPLIED: "{}"},
        labels={"c": "d"},
    )
    body = group(job)
    assert body["metadata"]["name"] == "j1-job-default-j1"
    assert body["metadata"]["labels"] == {"c": "d"}
    assert body["metadata"]["annotations"] == {"a": "b", keys.JOB_VERSION: "0"}
    assert body["status"] == {"phase": "Pending"}
    spec = body["spec"]
    resources = spec.pop("minResources")
    assert spec == {
        "minMember": 3,
        "minTaskMember": {"ps": 1, "worker": 2},
        "queue": "q1",
        "priorityClassName": "high",
    }
    assert resources["pods"] == resources["count/pods"] == "3"
    assert resources["cpu"] == resources["requests.cpu"] == "3"
    assert resources["memory"] == "3Gi"


def test_the_smallest_gang_takes_tasks_of_high_priority_first() -> None:
    tasks_ = [
        make_task("low", 3, cpu="1"),
        make_task("high", 2, cpu="10", pod_spec={"priorityClassName": "urgent"}),
    ]
    job = make_job(tasks=tasks_, min_available=3)
    assert group(job, make_priority_class("urgent", 9))["spec"]["minResources"]["cpu"] == "21"
    assert group(job)["spec"]["minResources"]["cpu"] == "3"


def test_a_gang_above_its_tasks_minimum_is_filled_up_in_order() -> None:
    tasks_ = [make_task("a", 3, cpu="1", min_available=1), make_task("b", 2, cpu="10")]
    job = make_job(tasks=tasks_, min_available=4)
    assert group(job)["spec"]["minResources"]["cpu"] == "22"


def test_partitions_become_sub_groups_and_a_tier_number_wins_over_its_name() -> None:
    topology = batch.NetworkTopology(highest_tier_allowed=2, highest_tier_name="rack")
    parts = batch.PartitionPolicy(
        total_partitions=2, partition_size=3, min_partitions=1, network_topology=topology
    )
    task = msgspec.structs.replace(make_task("w", 6), partition_policy=parts)
    spec = group(make_job(tasks=[task], min_available=0))["spec"]
    assert spec["minTaskMember"] == {"w": 3}
    assert spec["subGroupPolicy"] == [
        {
            "name": "w",
            "subGroupSize": 3,
            "minSubGroups": 1,
            "labelSelector": {"matchLabels": {keys.TASK_SPEC: "w"}},
            "matchLabelKeys": [keys.PARTITION_ID],
            "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
        }
    ]


def test_quota_counts_containers_sidecars_init_containers_limits_and_overhead() -> None:
    limited = core.Container(
        resources=core.ResourceRequirements(
            requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi", "x.io/gpu": 1}
        )
    )
    spec = core.PodSpec(
        containers=(limited, make_container("500m", "1Gi")),
        init_containers=(make_container("1", None, restart_policy="Always"), make_container("4")),
        overhead={"cpu": "100m"},
    )
    assert quota.total([(spec, 2)]) == {
        "count/pods": "2",
        "cpu": "10200m",
        "limits.cpu": "4200m",
        "limits.memory": "2Gi",
        "memory": "4Gi",
        "pods": "2",
        "requests.cpu": "10200m",
        "requests.memory": "4Gi",
        "requests.x.io/gpu": "2",
        "x.io/gpu": "2",
    }


def test_a_pod_is_the_same_bytes_every_time() -> None:
    """A repeated create after a crash must request the same pod."""
    job = make_job(plugins={"svc": (), "env": ()})
    member = next(iter(tasks.Members(job)))
    assert pods.create(job, member) == pods.create(job, member)
    assert pods.create(job, member).kind is kinds.PODS


def test_a_podgroup_carries_the_estimate_of_its_job() -> None:
    """The spec takes precedence over an annotation of the same meaning."""
    claimed = make_job(annotations={keys.RUNNING_ESTIMATE: "1s"})
    job = msgspec.structs.replace(
        claimed, spec=msgspec.structs.replace(claimed.spec, running_estimate="1h30m")
    )
    assert group(job)["metadata"]["annotations"][keys.RUNNING_ESTIMATE] == "1h30m"
    assert keys.RUNNING_ESTIMATE not in group(make_job())["metadata"]["annotations"]
