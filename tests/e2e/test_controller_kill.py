"""Every phase of a job continues when the controller is killed during it.

With everything in one process, with every message delayed, repeated and reordered, and on a real
broker and API server. All jobs are brought into their phase first, then the controller is killed
once for all of them; each test checks the end of one job.
"""

import contextlib
import json
from collections.abc import Iterator

import pytest

from stromboli.client import Client
from stromboli.client.events import Change
from stromboli.client.operations import calls
from stromboli.shared import keys
from stromboli.shared.api.batch import Job
from stromboli.testkit import objects
from tests.e2e.conftest import System
from tests.e2e.support.rest_user import LONG_S, Document, User, job, queue
from tests.examples import manifests

pytestmark = pytest.mark.timeout(300)  # starting the real parts counts, on a busy machine, too
BEGUN, CLOSED = ("Running", "Completed"), ("Closing", "Closed")
SPARK = manifests.read("spark")


def waiting(name: str, text: str) -> Document:
    made = job(name, 0.2)
    made["metadata"]["annotations"] = {keys.AFTER: text}
    return made


def in_steps(name: str) -> Document:
    """A task that starts when the previous one runs and ends long after that one has ended: a late
    controller must not take the job for complete before.
    """
    made, longer = job(name, 0.5), job(name, 6.0)
    (first,), (second,) = (it["spec"]["tasks"] for it in (made, longer))
    second |= {"name": "after", "dependsOn": {"name": ["work"]}}
    second["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    made["spec"]["tasks"] = [first, second]
    return made


RESTART = {"event": "PodFailed", "action": "RestartJob"}
RETRY = {"exitCode": 3, "action": "RestartTask", "maxRetries": 2, "backoff": "1s"}


ONCE = job("", 0.2)
ONCE["metadata"] = {"generateName": "k-once-", "namespace": "default"}


@contextlib.contextmanager
def watched(url: str, name: str) -> Iterator[Iterator[Change[Job]]]:
    """What happens to a job from now on."""
    with Client(url) as client:
        changes = client.watch(calls.watch_job("default", name), timeout_s=LONG_S)
        with contextlib.closing(changes):
            next(changes)
            yield changes


@pytest.fixture(scope="module")
def user(system: System) -> Iterator[User]:
    """After the kill."""
    with (
        contextlib.closing(User(system.url)) as user,
        watched(system.url, "k-steps") as user.changes,
    ):
        submit_and_run(user)
        system.kill_controller()
        user.apply(SPARK[-1])
        yield user
        for name in jobs(user):
            user.delete(name, may_be_gone=True)  # one has a time to live
        user.until(
            lambda: jobs(user), lambda left: left == []
        )  # the next leader starts from the log
        user.strom("queue", "operate", "k-house", "--action", "open")
        user.until(lambda: user.queue("k-room").get("state"), lambda now: now == "Open")


def jobs(user: User) -> list[str]:
    """Those of these stories."""
    return [name for name in user.names() if name.startswith("k-") or name == "mpi"]


def submit_and_run(user: User) -> None:
    user.submit(
        job("k-array", 0.5, pods=2, minAvailable=1, array={"indexes": "0-9"}),
        job("k-retried", 0.3, exit_code=3, policies=[RETRY], maxRetry=9),
        job("k-late", LONG_S, activeDeadlineSeconds=10),
        job("k-paused", LONG_S),
        job("k-elastic", LONG_S, pods=1, minAvailable=1, plugins={"env": [], "svc": [], "ssh": []}),
        job("k-attached", LONG_S),
        job("k-anew", 1.0, exit_code=3, policies=[RESTART], maxRetry=2),
        in_steps("k-steps"),
    )
    user.apply(queue("k-house"), queue("k-room", parent="k-house"))
    user.submit(job("k-inside", 3.0, queue="k-room"))
    user.submit(waiting("k-after", "afterok:k-array,afternotok:k-retried"))
    # On a slow machine its time limit passes before the other jobs are ready for the kill.
    user.until(lambda: user.phase("k-late"), lambda now: now in ("Running", "Failed"))
    user.until(
        lambda: user.status("k-array").get("array", {}).get("succeeded", ""), lambda it: it != ""
    )
    user.until(lambda: user.status("k-retried").get("retryCount", 0), lambda it: it >= 1)
    for name in ("k-elastic", "k-attached", "k-paused"):
        user.comes_to(name, "Running")
    for name in ("k-steps", "k-inside"):
        user.until(lambda name=name: user.phase(name), lambda now: now in BEGUN)  # type: ignore[misc]  # mypy and defaults
    user.strom("queue", "operate", "k-house", "--action", "close")
    user.until(lambda: user.queue("k-room").get("state"), lambda now: now in CLOSED)
    user.ask("k-paused", "suspend")
    user.comes_to("k-paused", "Aborted")
    attached = job("k-attached", LONG_S)
    attached["metadata"]["annotations"] = {keys.TOOLS: '[{"tool": "terminal"}]'}
    user.apply(attached)
    user.ask("k-elastic", "scale", task="work", replicas=3)
    user.apply(*SPARK[:-1])
    user.apply(*manifests.read("mpi"))
    user.submit(job("k-brief", 0.5, ttlSecondsAfterFinished=1))
    user.once = user.submit_once(ONCE, user.key)


def test_dependent_tasks_run_in_order(user: User) -> None:
    assert user.comes_to("k-steps", "Completed")["succeeded"] == 2
    user.until(  # the history is read from the log, so it is later than the phase
        lambda: user.get("k-steps", "/tasks?history")["tasks"],
        lambda tasks: (
            [(it["task"], it["state"]) for it in tasks]
            == [("after", "Succeeded"), ("work", "Succeeded")]
        ),
    )


def test_a_watch_opened_before_the_kill_reports_the_end(user: User) -> None:
    """It reconnects by itself."""
    phases = (change.object.status.state.phase for change in user.changes if change.object)
    assert "Completed" in phases


def test_an_array_runs_every_index_once(user: User) -> None:
    status = user.comes_to("k-array", "Completed")
    assert (status["array"]["succeeded"], status["succeeded"]) == ("0-9", 10)
    tasks = user.until(
        lambda: user.get("k-array", "/tasks?history")["tasks"],
        lambda found: sum(it["state"] == "Succeeded" for it in found) == 10,
    )
    assert sorted(it["index"] for it in tasks) == list(range(10))


def test_a_job_retried_by_exit_code_policy_keeps_its_budget_and_history(user: User) -> None:
    """Two retries with a delay each: attempts before the kill count and are listed."""
    status = user.comes_to("k-retried", "Failed")
    assert status["retryCount"] == 2
    tasks = user.until(
        lambda: user.get("k-retried", "/tasks?history")["tasks"],
        lambda found: [it["state"] for it in found] == ["Failed"] * 3,
    )
    assert [(it["attempt"], it["exitCode"]) for it in tasks] == [(1, 3), (2, 3), (3, 3)]


def test_a_restarted_job_keeps_its_retry_budget(user: User) -> None:
    """Each of its attempts is a separate version, and none follows the last one."""
    status = user.comes_to("k-anew", "Failed")
    assert (status["retryCount"], status["version"]) == (2, 2)


def test_a_time_limit_survives_the_kill(user: User) -> None:
    status = user.comes_to("k-late", "Failed")
    assert status["state"]["reason"] == "DeadlineExceeded"


def test_a_suspended_job_is_resumed(user: User) -> None:
    assert user.phase("k-paused") == "Aborted"
    assert user.pods("k-paused") == []
    user.strom("job", "resume", "k-paused")
    user.comes_to("k-paused", "Running")


def test_a_scaled_job_reaches_the_requested_replicas(user: User) -> None:
    user.until(lambda: user.status("k-elastic").get("running", 0), lambda it: it == 3)
    pods = [pod["spec"] for pod in user.pods("k-elastic")]
    given = [{it["name"]: it.get("value") for it in pod["containers"][0]["env"]} for pod in pods]
    assert sorted(env["VC_TASK_INDEX"] for env in given) == ["0", "1", "2"]
    assert {pod["subdomain"] for pod in pods} == {"k-elastic"}
    volumes = [objects.without_token_volume(pod["volumes"]) for pod in pods]
    assert len({json.dumps(each, sort_keys=True) for each in volumes}) == 1
    user.ask("k-elastic", "scale", task="work", replicas=2)
    user.until(lambda: len(user.pods("k-elastic")), lambda count: count == 2)


def test_a_requested_debug_tool_runs_beside_its_job(user: User) -> None:
    user.until(
        lambda: [pod["status"]["phase"] for pod in user.get("k-attached", "/tools")["items"]],
        lambda found: found == ["Running"],
    )


def test_a_job_starts_when_the_jobs_it_depends_on_have_ended(user: User) -> None:
    user.comes_to("k-after", "Completed")


def test_a_finished_job_is_deleted_after_its_ttl(user: User) -> None:
    user.until(user.names, lambda names: "k-brief" not in names)


def test_a_repeated_request_creates_no_second_job(user: User) -> None:
    assert user.submit_once(ONCE, user.key) == user.once
    assert [name for name in user.names() if name.startswith("k-once-")] == [user.once]


def test_unmanaged_pods_start_as_the_gang_they_name(user: User) -> None:
    """The last pod was created under another leader of the controller."""
    names = [found["metadata"]["name"] for found in SPARK if found["kind"] == "Pod"]
    user.until(lambda: user.phases(*names), lambda found: found == ["Succeeded"] * 3)


def test_the_mpi_example_completes(user: User) -> None:
    user.comes_to("mpi", "Completed")


def test_a_queue_is_closed_and_opened_by_commands(user: User) -> None:
    """The child with the parent; its running jobs continue to their end, and no new ones enter."""
    user.comes_to("k-inside", "Completed")
    for name in ("k-house", "k-room"):
        user.until(lambda name=name: user.queue(name).get("state"), lambda now: now == "Closed")  # type: ignore[misc]  # mypy and defaults
    user.until(lambda: user.queue("k-room"), lambda it: not any(it.get("allocated", {}).values()))
    assert user.refused(job("k-late-comer", 0.2, queue="k-room")) == ["spec.queue"]
    user.strom("queue", "operate", "k-house", "--action", "open")
    user.until(lambda: user.queue("k-room").get("state"), lambda now: now == "Open")
    user.submit(job("k-comes-in", 0.2, queue="k-room"))
    user.comes_to("k-comes-in", "Completed")


def test_the_command_line_shows_history_from_before_and_after_the_kill(user: User) -> None:
    user.comes_to("k-retried", "Failed")

    def attempts() -> list[int]:
        reported = json.loads(user.strom("job", "history", "k-retried", "--output", "json"))
        tasks = reported["tasks"] if isinstance(reported, dict) else reported
        return [it["attempt"] for it in tasks]

    # The history is read from the log, so it is later than the phase.
    user.until(attempts, lambda found: found == [1, 2, 3])
