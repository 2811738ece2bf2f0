"""Task instances as manifests: names, options and causes of an end."""

import msgspec
import pytest

from stromboli.airflow import endings, manifests, outcomes, settings, task_jobs, tracking
from stromboli.client import job
from stromboli.client.events import Change
from stromboli.shared.api import batch, meta
from stromboli.shared.api.views.task_history import TaskAttempt, TaskHistory

KEY = manifests.TaskKey("etl", "manual__2026-01-01", "train_model", -1, 2)
MANIFEST = """
metadata: {name: train, labels: {team: vision}}
spec:
  minAvailable: 1
  tasks: [{name: main, replicas: 1}]
"""


def in_phase(phase: str, name: str = "train") -> batch.Job:
    made = job(name, image="busybox")
    state = batch.JobState(phase=phase)
    metadata = meta.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    status = msgspec.structs.replace(made.status, state=state)
    return msgspec.structs.replace(made, metadata=metadata, status=status)


def history(reason: str, exit_code: int | None = None, state: str = "Failed") -> TaskHistory:
    attempt = TaskAttempt(
        task="main",
        index=0,
        attempt=1,
        pod="train-main-0",
        pod_uid="p",
        state=state,
        node="node-1",
        reason=reason,
        exit_code=exit_code,
    )
    return TaskHistory(job="default/train", uid="uid-train", tasks=(attempt,))


def test_each_attempt_has_a_name_of_its_own_that_does_not_change() -> None:
    others = [
        msgspec.structs.replace(KEY, try_number=3),
        msgspec.structs.replace(KEY, map_index=4),
        msgspec.structs.replace(KEY, run_id="manual__2026-01-02"),
    ]
    assert len({manifests.job_name(KEY), *map(manifests.job_name, others)}) == 4
    assert manifests.job_name(KEY) == manifests.job_name(msgspec.structs.replace(KEY))
    assert manifests.job_name(KEY).startswith("etl-train-model-")
    assert manifests.job_name(KEY, "Night Run").startswith("night-run-")


def test_a_manifest_keeps_its_fields_and_gets_the_name_of_the_attempt() -> None:
    made = manifests.submitted(KEY, manifests.parsed(MANIFEST), "research", 3600)
    assert made["metadata"]["name"] == manifests.job_name(KEY, "train")
    assert made["metadata"]["namespace"] == "research"
    assert made["metadata"]["labels"] == {"team": "vision", manifests.DAG_LABEL: "etl"}
    assert made["metadata"]["annotations"] == {manifests.TASK_ANNOTATION: str(KEY)}
    assert made["spec"]["ttlSecondsAfterFinished"] == 3600
    assert made["spec"]["minAvailable"] == 1


@pytest.mark.parametrize("text", ["a: [", "- 1", "kind: Queue"])
def test_what_is_not_a_job_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="manifest"):
        manifests.parsed(text)


@pytest.mark.parametrize(
    ("reason", "exit_code", "is_retryable"),
    [
        ("Preempted", None, True),
        ("NodeLost", None, True),
        ("Error", 1, True),
        ("Error", 42, False),
        ("OOMKilled", 137, False),
        ("DeadlineExceeded", 143, False),
    ],
)
def test_the_cause_decides_about_another_try(
    reason: str, exit_code: int | None, is_retryable: bool
) -> None:
    ending = endings.ending(in_phase("Failed"), history(reason, exit_code), (42,))
    assert ending.is_retryable is is_retryable
    assert ending.message.startswith(
        f"job default/train is Failed: pod train-main-0 on node-1: {reason}"
    )


def test_a_job_that_a_user_terminated_is_not_tried_again() -> None:
    ending = endings.ending(in_phase("Terminated"), history("", None, "Gone"))
    assert not ending.is_retryable


def test_a_suspended_job_has_not_ended() -> None:
    view = outcomes.JobView(outcomes.Awaited(namespace="default", name="train"))
    assert view.seen(Change("added", in_phase("Aborted"))) is None
    assert view.seen(Change("synced")) is None
    ended = view.seen(Change("modified", in_phase("Completed")))
    assert ended == outcomes.Outcome(result=outcomes.ENDED, phase="Completed")


def test_a_job_that_is_not_listed_or_another_of_its_name_is_gone() -> None:
    awaited = outcomes.Awaited(namespace="default", name="train", uid="uid-earlier")
    for change in (Change[batch.Job]("synced"), Change("added", in_phase("Running"))):
        outcome = outcomes.JobView(awaited).seen(change)
        assert outcome is not None
        assert outcome.result == outcomes.GONE


def test_the_deadline_of_the_start_ends_with_the_start() -> None:
    awaited = outcomes.Awaited(namespace="default", name="train", start_by=100, end_by=500)
    view = outcomes.JobView(awaited)
    assert view.watch_s(90) == 10
    late = view.passed(100)
    assert late is not None
    assert late.result == outcomes.NOT_STARTED
    view.seen(Change("added", in_phase("Running")))
    assert view.passed(400) is None
    assert view.watch_s(400) == 100
    ended = view.passed(500)
    assert ended is not None
    assert ended.result == outcomes.TIMED_OUT


def work(**options: object) -> task_jobs.Work:
    return task_jobs.Work(
        key=KEY,
        external_id="0e8ab4b8-3a2b-4c29-b13c-7d2b7e55ad21",
        queue="gpu",
        document="{}",
        options=task_jobs.options(options),
    )


def test_a_task_instance_is_a_pod_that_never_starts_twice() -> None:
    made = task_jobs.task_job(work(), task_jobs.ExecutorSettings(queues={"gpu": "research"}))
    assert made.metadata.name == "airflow-etl-train-model-0e8ab4b83a2b"
    (policy,) = made.spec.policies
    assert (policy.event, policy.action) == ("PodEvicted", "TerminateJob")
    assert made.spec.queue == "research"
    assert made.spec.ttl_seconds_after_finished == 600


def test_executor_config_has_precedence_over_the_options_of_the_executor() -> None:
    options = {"queue": "night", "requests": {"memory": "8Gi"}, "gpus": 2, "env": {"A": "b"}}
    made = task_jobs.task_job(work(**options), task_jobs.ExecutorSettings(environment={"A": "a"}))
    (container,) = msgspec.json.decode(made.spec.tasks[0].template.spec)["containers"]
    assert container["resources"]["requests"] == {
        "cpu": "1",
        "memory": "8Gi",
        "nvidia.com/gpu": "2",
    }
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert made.spec.queue == "night"


def test_an_unknown_field_of_executor_config_is_refused() -> None:
    with pytest.raises(ValueError, match=r"executor_config.*gpu"):
        work(gpu=1)


def test_the_first_container_of_a_pod_template_runs_the_task() -> None:
    template = task_jobs.pod_template(
        """
        metadata: {labels: {team: vision}}
        spec:
          serviceAccountName: airflow
          containers:
          - {name: main, env: [{name: B, value: c}], volumeMounts: [{name: dags, mountPath: /dags}]}
          - {name: proxy, image: proxy}
        """
    )
    settings_ = task_jobs.ExecutorSettings(pod_template=template, image="airflow")
    (task,) = task_jobs.task_job(work(env={"A": "b"}), settings_).spec.tasks
    pod = msgspec.json.decode(task.template.spec)
    main, proxy = pod["containers"]
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == ("airflow", "Never")
    assert main["command"][:3] == ["python", "-m", task_jobs.MODULE]
    assert main["env"] == [{"name": "B", "value": "c"}, {"name": "A", "value": "b"}]
    assert main["volumeMounts"] == [{"name": "dags", "mountPath": "/dags"}]
    assert proxy == {"name": "proxy", "image": "proxy"}
    assert task.template.metadata.labels == {"team": "vision"}


def test_a_tracked_job_is_reported_once_it_ended_or_was_deleted() -> None:
    tracked: tracking.TrackedJobs[str] = tracking.TrackedJobs()
    tracked.add("a", "task a")
    tracked.add("b", "task b")
    assert tracked.fold(Change("modified", in_phase("Running", "a"))) == []
    assert tracked.fold(Change("modified", in_phase("Completed", "other"))) == []
    (ended,) = tracked.fold(Change("modified", in_phase("Failed", "a")))
    assert (ended.name, ended.state, tracked.key("a")) == ("a", "ended", "task a")
    (deleted,) = tracked.fold(Change("deleted", in_phase("Running", "b")))
    assert (deleted.name, deleted.state) == ("b", "deleted")
    assert tracked.remove("task a") == "a"
    assert tracked.fold(Change("deleted", in_phase("Failed", "a"))) == []


def test_the_end_of_a_job_whose_deferred_task_was_resumed_is_not_reported() -> None:
    """The resumed task has the same key, and its end is that of its new job."""
    tracked: tracking.TrackedJobs[str] = tracking.TrackedJobs()
    tracked.add("before", "task")
    tracked.add("resumed", "task")
    assert tracked.fold(Change("modified", in_phase("Completed", "before"))) == []
    (ended,) = tracked.fold(Change("modified", in_phase("Completed", "resumed")))
    assert ended.name == "resumed"


def test_a_job_that_is_missing_after_a_new_list_is_asked_for() -> None:
    """The list may be older than the submission, so the job is not reported as deleted."""
    tracked: tracking.TrackedJobs[str] = tracking.TrackedJobs()
    tracked.add("a", "task a")
    tracked.add("b", "task b")
    tracked.fold(Change("reset"))
    tracked.fold(Change("added", in_phase("Running", "b")))
    assert tracked.fold(Change("synced")) == [tracking.Fact("a", "unlisted")]


def test_a_connection_names_server_token_and_certificate() -> None:
    server_settings = settings.of_connection(
        host="stromboli.example",
        port=8480,
        schema=None,
        password="secret",
        extra={"namespace": "research", "ca_file": "/ca.crt"},
    )
    assert server_settings.url == "https://stromboli.example:8480"
    assert (server_settings.token, server_settings.namespace, server_settings.ca_file) == (
        "secret",
        "research",
        "/ca.crt",
    )
    assert settings.of_connection(
        host="http://127.0.0.1:1", port=None, schema=None, password=None, extra={}
    ) == settings.ServerSettings(url="http://127.0.0.1:1")
