"""A pod's life on a process node, event by event, in virtual time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.embedded.processes.core import pod as pods
from stromboli.embedded.processes.core import status
from stromboli.embedded.processes.core.lifecycle import (
    Action,
    Deleted,
    Ended,
    Event,
    NodeUnsuitable,
    PodLifecycle,
    ProbeAnswered,
    ProbeKind,
    Refused,
    RunProbe,
    Start,
    Started,
    Stop,
    TimePassed,
)
from stromboli.shared import decoding

BEGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EXEC = {"exec": {"command": ["true"]}}


def pod(*containers: dict[str, Any], **fields: Any) -> pods.Pod:
    """A pod of these containers; ``status`` apart, further fields are the spec's."""
    seen = fields.pop("status", {})
    mains = [{"name": "main"}] if not containers else list(containers)
    return decoding.convert(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"restartPolicy": "Never", "containers": mains, **fields},
            "status": seen,
        },
        pods.Pod,
    )


def good(probe: ProbeKind) -> ProbeAnswered:
    return ProbeAnswered("main", probe, is_good=True)


def bad(probe: ProbeKind) -> ProbeAnswered:
    return ProbeAnswered("main", probe, is_good=False, message="exit code 1")


class LifecycleRunner:
    """A life cycle in virtual time: events in, actions out."""

    def __init__(self, seen: pods.Pod) -> None:
        self.now = BEGIN
        self.life = PodLifecycle(seen, self.now)
        self.begun = self.after(0, TimePassed())

    def after(self, seconds: float, event: Event) -> list[Action]:
        self.now += timedelta(seconds=seconds)
        return self.life.handle(event, self.now)

    def starts(self, name: str = "main") -> None:
        """The container was started, and it runs."""
        assert self.after(0, Started(name)) == []

    @property
    def status(self) -> status.Document:
        return status.pod_status(self.life, "127.1.1.1", (), (), self.now)

    def state(self, name: str = "main") -> Any:
        containers = [
            *self.status.get("initContainerStatuses", ()),
            *self.status["containerStatuses"],
        ]
        return next(each for each in containers if each["name"] == name)


def test_all_containers_start_at_once_and_the_pod_runs_when_all_have() -> None:
    story = LifecycleRunner(pod({"name": "a"}, {"name": "b"}))
    assert story.begun == [Start("a", 0), Start("b", 0)]
    story.starts("a")
    assert story.status["phase"] == "Pending"
    story.starts("b")
    assert story.status["phase"] == "Running"
    conditions = {each["type"]: each["status"] for each in story.status["conditions"]}
    assert conditions == {"Initialized": "True", "ContainersReady": "True", "Ready": "True"}


@pytest.mark.parametrize(
    ("codes", "phase"), [((0, 0), "Succeeded"), ((0, 3), "Failed"), ((1, 0), "Failed")]
)
def test_a_pod_is_over_when_all_have_ended_and_good_if_all_were(
    codes: Sequence[int], phase: str
) -> None:
    story = LifecycleRunner(pod({"name": "a"}, {"name": "b"}))
    for name in ("a", "b"):
        story.starts(name)
    assert story.after(1, Ended("a", codes[0])) == []
    assert story.status["phase"] == "Running"
    assert story.after(1, Ended("b", codes[1])) == []
    assert story.life.is_over
    assert story.status["phase"] == phase
    assert story.state("b")["state"]["terminated"] == {
        "exitCode": codes[1],
        "reason": "Error" if codes[1] else "Completed",
        "startedAt": "2026-11-21T12:00:00Z",
        "finishedAt": "2026-11-21T12:00:02Z",
    }


def test_init_containers_run_one_after_another_before_all_others() -> None:
    story = LifecycleRunner(pod(initContainers=[{"name": "one"}, {"name": "two"}]))
    assert story.begun == [Start("one", 0)]
    story.starts("one")
    assert story.state()["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert story.after(1, Ended("one", 0)) == [Start("two", 0)]
    story.starts("two")
    assert story.status["phase"] == "Pending"
    assert story.after(1, Ended("two", 0)) == [Start("main", 0)]


def test_an_init_container_that_fails_fails_the_pod_where_nothing_restarts() -> None:
    story = LifecycleRunner(pod(initContainers=[{"name": "one"}]))
    story.starts("one")
    assert story.after(1, Ended("one", 2)) == []
    assert (story.life.is_over, story.status["phase"]) == (True, "Failed")


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_an_init_container_restarts_only_after_a_failure(policy: str) -> None:
    story = LifecycleRunner(pod(initContainers=[{"name": "one"}], restartPolicy=policy))
    story.starts("one")
    assert story.after(1, Ended("one", 2)) == [Start("one", 1)]
    story.starts("one")
    assert story.after(1, Ended("one", 0)) == [Start("main", 0)]


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        ("Never", 1, False),
        ("Never", 0, False),
        ("OnFailure", 1, True),
        ("OnFailure", 0, False),
        ("Always", 1, True),
        ("Always", 0, True),
    ],
)
def test_the_restart_policy_decides(policy: str, code: int, restarts: bool) -> None:
    story = LifecycleRunner(pod(restartPolicy=policy))
    story.starts()
    assert story.after(1, Ended("main", code)) == ([Start("main", 1)] if restarts else [])
    assert story.life.is_over is not restarts


def test_pauses_between_restarts_double_up_to_five_minutes() -> None:
    """The first restart is immediate, as with a kubelet."""
    story = LifecycleRunner(pod(restartPolicy="OnFailure"))
    pauses = []
    for _ in range(8):
        story.starts()
        done = story.after(1, Ended("main", 1))
        wake_at = story.life.wake_at
        pauses.append((wake_at - story.now).total_seconds() if wake_at else 0.0)
        if wake_at:
            assert story.state()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            assert story.after(pauses[-1] - 0.5, TimePassed()) == []
            done = story.after(0.5, TimePassed())
        assert done == [Start("main", len(pauses))]
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
    assert story.state()["restartCount"] == 8
    assert story.state()["lastState"]["terminated"]["exitCode"] == 1


def test_a_long_run_resets_the_backoff() -> None:
    story = LifecycleRunner(pod(restartPolicy="OnFailure"))
    story.starts()
    story.after(1, Ended("main", 1))
    story.starts()
    assert story.after(601, Ended("main", 1)) == [Start("main", 2)]


def test_what_is_missing_is_tried_again_and_is_no_restart() -> None:
    story = LifecycleRunner(pod())
    assert story.after(0, Refused("main", "CreateContainerConfigError", "no map")) == []
    assert story.status["phase"] == "Pending"
    assert story.state()["state"]["waiting"]["message"] == "no map"
    assert story.after(1.9, TimePassed()) == []
    assert story.after(0.1, TimePassed()) == [Start("main", 0)]
    assert story.state()["restartCount"] == 0


def test_a_deleted_pod_ends_with_grace_and_only_then_is_over() -> None:
    story = LifecycleRunner(pod(restartPolicy="Always"))
    story.starts()
    assert story.after(1, Deleted(30)) == [Stop("main", 30)]
    assert story.after(0, Deleted(30)) == []
    assert story.after(1, Deleted(5)) == [Stop("main", 5)]
    assert story.status["phase"] == "Running"
    assert story.after(1, Ended("main", 143)) == []
    assert story.life.is_over
    assert story.status["phase"] == "Failed"
    assert story.state()["state"]["terminated"]["signal"] == 15


def test_a_pod_deleted_while_it_starts_is_over_also_if_it_never_began() -> None:
    story = LifecycleRunner(pod())
    assert story.after(0, Deleted(30)) == [Stop("main", 30)]
    assert story.after(0, Refused("main", "Stopped", "")) == []
    assert story.life.is_over


def test_a_pod_has_no_longer_than_its_deadline() -> None:
    story = LifecycleRunner(pod(activeDeadlineSeconds=5, terminationGracePeriodSeconds=3))
    story.starts()
    assert story.life.wake_at == BEGIN + timedelta(seconds=5)
    assert story.after(5, TimePassed()) == [Stop("main", 3)]
    story.after(1, Ended("main", 0))
    assert story.status["phase"] == "Failed"
    assert story.status["reason"] == "DeadlineExceeded"


def test_a_pod_that_can_never_run_here_fails_and_reports_the_reason() -> None:
    story = LifecycleRunner(pod())
    story.after(0, NodeUnsuitable("NotSupported", "volume v is of another kind"))
    story.after(0, Refused("main", "Stopped", ""))
    assert (story.status["phase"], story.status["reason"]) == ("Failed", "NotSupported")


def test_of_a_pod_that_is_refused_before_it_began_nothing_is_reported_but_why() -> None:
    """For a container that is still being created kubectl would report this indefinitely."""
    life = PodLifecycle(pod(), BEGIN)
    life.handle(NodeUnsuitable("NotSupported", "no command"), BEGIN)
    seen = status.pod_status(life, "127.1.1.1", (), (), BEGIN)
    assert (seen["phase"], seen["reason"]) == ("Failed", "NotSupported")
    assert "containerStatuses" not in seen


def test_a_failing_liveness_probe_restarts_the_container() -> None:
    probe = {**EXEC, "initialDelaySeconds": 2, "periodSeconds": 4, "failureThreshold": 2}
    story = LifecycleRunner(
        pod({"name": "main", "livenessProbe": probe}, restartPolicy="OnFailure")
    )
    story.starts()
    assert story.after(1.9, TimePassed()) == []
    assert story.after(0.1, TimePassed()) == [RunProbe("main", "liveness")]
    assert story.after(1, TimePassed()) == []
    assert story.after(0, bad("liveness")) == []
    assert story.after(4, TimePassed()) == [RunProbe("main", "liveness")]
    stopped = story.after(0, bad("liveness"))
    assert stopped == [Stop("main", 30)]
    assert story.after(1, Ended("main", 143)) == [Start("main", 1)]
    message = story.state()["lastState"]["terminated"]["message"]
    assert message == "its liveness probe failed: exit code 1"


def test_a_single_good_answer_forgives_the_bad_ones_before_it() -> None:
    probe = {**EXEC, "failureThreshold": 2}
    story = LifecycleRunner(
        pod({"name": "main", "livenessProbe": {**probe, "initialDelaySeconds": 1}})
    )
    story.starts()
    for answer in (bad, good, bad, good):
        assert story.after(10, TimePassed()) == [RunProbe("main", "liveness")]
        assert story.after(0, answer("liveness")) == []


def test_other_probes_wait_for_the_startup_probe() -> None:
    container = {"name": "main", "startupProbe": EXEC, "readinessProbe": EXEC}
    story = LifecycleRunner(pod(container))
    assert story.after(0, Started("main")) == [RunProbe("main", "startup")]
    assert story.state()["started"] is False
    requested = story.after(0, good("startup"))
    assert requested == [RunProbe("main", "readiness")]
    assert (story.state()["started"], story.state()["ready"]) == (True, False)
    story.after(0, good("readiness"))
    assert story.state()["ready"] is True


def test_a_sidecar_runs_before_the_others_and_until_after_them() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always"}
    story = LifecycleRunner(pod(initContainers=[sidecar, {"name": "init"}]))
    assert story.begun == [Start("side", 0)]
    assert story.after(0, Started("side")) == [Start("init", 0)]
    story.starts("init")
    assert story.after(1, Ended("init", 0)) == [Start("main", 0)]
    story.starts()
    assert story.after(1, Ended("side", 0)) == [Start("side", 1)]
    story.starts("side")
    assert story.after(1, Ended("main", 0)) == [Stop("side", 30)]
    story.after(1, Ended("side", 143))
    assert story.status["phase"] == "Succeeded"


RUNNING_BEFORE = {
    "phase": "Running",
    "startTime": "2026-11-21T11:00:00Z",
    "containerStatuses": [
        {
            "name": "main",
            "restartCount": 2,
            "state": {"running": {"startedAt": "2026-11-21T11:59:00Z"}},
        }
    ],
}


def test_what_ran_on_a_node_that_was_stopped_has_failed() -> None:
    story = LifecycleRunner(pod(status=RUNNING_BEFORE))
    assert story.begun == []
    assert story.status["phase"] == "Failed"
    ended = story.state()["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")


def test_what_may_restart_continues_after_the_node_was_stopped() -> None:
    story = LifecycleRunner(pod(status=RUNNING_BEFORE, restartPolicy="OnFailure"))
    assert story.begun == [Start("main", 3)]
    assert story.status["startTime"] == "2026-11-21T11:00:00Z"


def test_an_init_container_that_was_done_is_not_run_again_by_another_node() -> None:
    done = {"name": "init", "state": {"terminated": {"exitCode": 0}}}
    seen = {**RUNNING_BEFORE, "initContainerStatuses": [done]}
    story = LifecycleRunner(
        pod(initContainers=[{"name": "init"}], status=seen, restartPolicy="OnFailure")
    )
    assert story.begun == [Start("main", 3)]


NAMES = ("init", "side", "a", "b")
EVENTS = st.one_of(
    st.builds(Started, st.sampled_from(NAMES)),
    st.builds(Refused, st.sampled_from(NAMES), st.just("R"), st.just("")),
    st.builds(Ended, st.sampled_from(NAMES), st.sampled_from((0, 1, 137))),
    st.builds(
        ProbeAnswered,
        st.sampled_from(NAMES),
        st.sampled_from(("startup", "liveness", "readiness")),
        st.booleans(),
    ),
    st.builds(Deleted, st.sampled_from((0.0, 5.0, 30.0))),
    st.just(TimePassed()),
)


@given(
    policy=st.sampled_from(("Never", "OnFailure", "Always")),
    events=st.lists(st.tuples(st.sampled_from((0.0, 1.0, 20.0, 400.0)), EVENTS), max_size=40),
)
def test_whatever_happens_no_container_runs_twice_and_a_deleted_pod_comes_to_its_end(
    policy: str, events: list[tuple[float, Event]]
) -> None:
    """Also late, repeated and impossible events; a run's number is never given twice."""
    story = LifecycleRunner(
        pod(
            {"name": "a", "livenessProbe": EXEC, "startupProbe": EXEC},
            {"name": "b", "readinessProbe": EXEC},
            initContainers=[{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
            restartPolicy=policy,
        )
    )
    alive: set[str] = set()
    started: set[Start] = set()

    def check(actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                assert action.container not in alive
                assert action not in started or action.container in refused
                refused.discard(action.container)
                alive.add(action.container)
                started.add(action)
            else:
                assert action.container in alive
        assert not (story.life.is_over and alive)

    refused: set[str] = set()
    check(story.begun)
    for seconds, event in events:
        if isinstance(event, Ended | Refused):
            run = story.life.runs[event.container]
            if isinstance(event, Ended) or run.stage in ("starting", "stopping"):
                alive.discard(event.container)
            if isinstance(event, Refused):
                refused.add(event.container)
        check(story.after(seconds, event))
        if {"a", "b"} & alive:
            assert story.life.runs["init"].has_succeeded
        status.pod_status(story.life, "127.1.1.1", (), (), story.now)
    check(story.after(0, Deleted(0)))
    for _ in range(2):  # sidecars go last
        for name in list(alive):
            alive.discard(name)
            check(story.after(0, Ended(name, 137)))
    assert story.life.is_over
