"""Every point of a job's life goes on where it was when the controller is killed in its middle.

With everything in one process, with every message delayed, repeated and reordered, and on a real
broker and API server. All jobs are brought to their middle first, then the controller is killed
once for all of them; each test looks at the end of one.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from stromboli.shared import keys
from tests.e2e.conftest import System

pytestmark = pytest.mark.timeout(300)  # starting the real parts counts, on a busy machine, too
WITHIN_S = 120.0
LOOK_EVERY_S = 0.1
LONG_S = 600.0
SPACE = "/v1/namespaces/default/jobs"
Document = dict[str, Any]


class User:
    """Somebody with a REST client."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def close(self) -> None:
        self._http.close()

    def submit(self, *jobs: Document) -> None:
        for job in jobs:
            answer = self._http.post(SPACE, json=job)
            assert answer.status_code == 201, answer.text

    def ask(self, name: str, verb: str, **body: Any) -> None:
        self._http.post(f"{SPACE}/{name}/{verb}", json=body or None).raise_for_status()

    def apply(self, *documents: Document) -> None:
        answer = self._http.post("/v1/apply", json={"objects": documents})
        assert answer.status_code == 200, answer.text

    def delete(self, name: str) -> None:
        self._http.delete(f"{SPACE}/{name}").raise_for_status()

    def get(self, name: str, what: str = "") -> Any:
        return self._http.get(f"{SPACE}/{name}{what}").raise_for_status().json()

    def status(self, name: str) -> Document:
        found: Document = self.get(name).get("status", {})
        return found

    def pods(self, name: str) -> list[Document]:
        found: list[Document] = self.get(name, "/pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def until(self, seen: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        """The first picture that is wanted; fails with the last one."""
        deadline = time.monotonic() + WITHIN_S
        while not wanted(picture := seen()):
            assert time.monotonic() < deadline, f"still {picture!r} after {WITHIN_S:.0f} s"
            time.sleep(LOOK_EVERY_S)
        return picture

    def comes_to(self, name: str, phase: str) -> Document:
        found: Document = self.until(
            lambda: self.status(name), lambda now: now.get("state", {}).get("phase") == phase
        )
        return found


def job(name: str, run_s: float, *, exit_code: int = 0, pods: int = 1, **spec: Any) -> Document:
    """Small pods that run for a time and end with a code."""
    annotations = {keys.RUN_SECONDS: str(run_s), keys.EXIT_CODE: str(exit_code)}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    task = {"name": "work", "replicas": pods, "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"tasks": [task], **spec},
    }


def waiting(name: str, text: str) -> Document:
    made = job(name, 0.2)
    made["metadata"]["annotations"] = {keys.AFTER: text}
    return made


RETRY = {"exitCode": 3, "action": "RestartTask", "maxRetries": 2, "backoff": "1s"}


@pytest.fixture(scope="module")
def user(system: System) -> Iterator[User]:
    """After the kill."""
    user = User(system.url)
    user.submit(
        job("k-array", 0.5, pods=2, minAvailable=1, array={"indexes": "0-9"}),
        job("k-retried", 0.3, exit_code=3, policies=[RETRY], maxRetry=9),
        job("k-late", LONG_S, activeDeadlineSeconds=10),
        job("k-paused", 3.0),
        job("k-elastic", LONG_S, pods=1, minAvailable=1),
        job("k-attached", LONG_S),
    )
    user.submit(waiting("k-after", "afterok:k-array,afternotok:k-retried"))
    user.until(
        lambda: user.status("k-array").get("array", {}).get("succeeded", ""), lambda it: it != ""
    )
    user.until(lambda: user.status("k-retried").get("retryCount", 0), lambda it: it >= 1)
    for name in ("k-late", "k-elastic", "k-attached", "k-paused"):
        user.comes_to(name, "Running")
    user.ask("k-paused", "suspend")
    user.comes_to("k-paused", "Aborted")
    attached = job("k-attached", LONG_S)
    attached["metadata"]["annotations"] = {keys.TOOLS: '[{"tool": "terminal"}]'}
    user.apply(attached)
    user.ask("k-elastic", "scale", task="work", replicas=3)
    system.kill_controller()
    yield user
    for name in ("k-elastic", "k-attached"):
        user.delete(name)
    user.close()


def test_an_array_runs_every_index_once(user: User) -> None:
    status = user.comes_to("k-array", "Completed")
    assert (status["array"]["succeeded"], status["succeeded"]) == ("0-9", 10)
    tasks = user.until(
        lambda: user.get("k-array", "/tasks?history")["tasks"],
        lambda found: sum(it["state"] == "Succeeded" for it in found) == 10,
    )
    assert sorted(it["index"] for it in tasks) == list(range(10))


def test_a_job_that_is_retried_by_cause_keeps_its_budget_and_its_history(user: User) -> None:
    """Twice, with a pause each: what was tried before the kill counts and is told."""
    status = user.comes_to("k-retried", "Failed")
    assert status["retryCount"] == 2
    tasks = user.until(
        lambda: user.get("k-retried", "/tasks?history")["tasks"],
        lambda found: [it["state"] for it in found] == ["Failed"] * 3,
    )
    assert [(it["attempt"], it["exitCode"]) for it in tasks] == [(1, 3), (2, 3), (3, 3)]


def test_a_time_limit_holds_over_the_kill(user: User) -> None:
    status = user.comes_to("k-late", "Failed")
    assert status["state"]["reason"] == "DeadlineExceeded"


def test_a_suspended_job_is_resumed_and_completes(user: User) -> None:
    assert user.status("k-paused")["state"]["phase"] == "Aborted"
    user.ask("k-paused", "resume")
    assert user.comes_to("k-paused", "Completed")["succeeded"] == 1


def test_a_job_that_is_scaled_comes_to_what_was_asked(user: User) -> None:
    user.until(lambda: user.status("k-elastic").get("running", 0), lambda it: it == 3)
    user.ask("k-elastic", "scale", task="work", replicas=2)
    user.until(lambda: len(user.pods("k-elastic")), lambda count: count == 2)


def test_a_tool_that_was_asked_for_runs_beside_its_job(user: User) -> None:
    user.until(
        lambda: [pod["status"]["phase"] for pod in user.get("k-attached", "/tools")["items"]],
        lambda found: found == ["Running"],
    )


def test_a_job_that_waits_for_others_begins_when_they_have_ended(user: User) -> None:
    user.comes_to("k-after", "Completed")
