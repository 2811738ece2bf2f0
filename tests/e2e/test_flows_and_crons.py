"""Flows and crons from end to end, with a kill of the controller in the middle.

With everything in one process, with every message delayed, repeated and reordered, and on a real
broker and API server.
"""

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from stromboli.client import server
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from tests.e2e.conftest import System
from tests.e2e.support import polling

pytestmark = pytest.mark.timeout(300)  # starting the real parts counts, on a busy machine, too
WITHIN_S = 90.0
RUN_S = "0.5"
Document = dict[str, Any]


class User:
    """A user with a REST client."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(**server.httpx_options(url, 30))

    def apply(self, *documents: Document) -> None:
        answer = self.http.post("/v1/apply", json={"objects": documents})
        assert answer.status_code == 200, answer.text

    def get(self, path: str) -> Any:
        return self.http.get(f"/v1/namespaces/default/{path}").raise_for_status().json()

    def jobs_of(self, maker: str) -> dict[str, Document]:
        """Name -> job, of those that one object made."""
        return {
            job["metadata"]["name"]: job
            for job in self.get("jobs")["items"]
            if any(it["name"] == maker for it in job["metadata"].get("ownerReferences", []))
        }

    def until(self, read: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        """See ``polling.until``."""
        return polling.until(read, wanted, WITHIN_S)


@pytest.fixture
def user(base_url: str) -> Iterator[User]:
    made = User(base_url)
    yield made
    made.http.close()


def document(kind: Kind[Any], name: str, spec: Document) -> Document:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def job_spec(**more: Any) -> Document:
    """One small pod that runs for a moment."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    template = {
        "metadata": {"annotations": {keys.RUN_SECONDS: RUN_S}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"tasks": [{"name": "work", "replicas": 1, "template": template}], **more}


def state(flow: Document) -> str:
    phase: str = flow.get("status", {}).get("state", {}).get("phase", "")
    return phase


def phase_histories(flow: Document) -> dict[str, list[str]]:
    """Job -> the phases that it went through."""
    return {
        it["name"]: [phase["state"] for phase in it["runningHistories"]]
        for it in flow["status"]["jobStatusList"]
    }


def test_a_flow_runs_each_job_once_after_its_targets(system: System, user: User) -> None:
    """Its first job lives no time at all after its end, and the controller is killed before the
    flow is through."""
    patch = {"jobSpec": {"tasks": [{"name": "work", "replicas": 2}]}}
    entries = [
        {"name": "prepare"},
        {"name": "train", "dependsOn": {"targets": ["prepare"]}, "patch": patch},
        {"name": "report", "dependsOn": {"targets": ["prepare", "train"]}},
    ]
    user.apply(
        document(kinds.JOB_TEMPLATES, "prepare", job_spec(ttlSecondsAfterFinished=0)),
        document(kinds.JOB_TEMPLATES, "train", job_spec()),
        document(kinds.JOB_TEMPLATES, "report", job_spec()),
        document(kinds.JOB_FLOWS, "night", {"flows": entries}),
    )
    user.until(lambda: user.jobs_of("night"), lambda jobs: "night-train" in jobs)
    system.kill_controller()
    flow = user.until(lambda: user.get("jobflows/night"), lambda it: state(it) == "Succeed")
    assert flow["status"]["completedJobs"] == ["night-prepare", "night-train", "night-report"]
    # The end of the flow waits for the jobs, and not for the deletion of one that has ended.
    jobs = user.until(
        lambda: user.jobs_of("night"), lambda it: it.keys() == {"night-train", "night-report"}
    )
    assert jobs["night-train"]["status"]["succeeded"] == 2
    for phases in phase_histories(flow).values():
        assert phases == sorted(set(phases), key=["Pending", "Running", "Completed"].index)
        assert phases[-1] == "Completed"
    template = user.until(
        lambda: user.get("jobtemplates/train"), lambda it: it.get("status", {}) != {}
    )
    assert template["status"]["jobDependsOnList"] == ["night-train"]


def test_the_flow_example_completes(user: User) -> None:
    manifest = Path(__file__).parents[2] / "examples" / "flow.yaml"
    user.apply(*yaml.safe_load_all(manifest.read_text()))
    flow = user.until(lambda: user.get("jobflows/nightly"), lambda it: state(it) == "Succeed")
    assert len(flow["status"]["completedJobs"]) == 3


def test_a_flow_starts_the_next_job_while_its_target_runs(user: User) -> None:
    probe = {"taskStatusList": [{"taskName": "work", "phase": "Running"}]}
    server = job_spec()
    annotations = server["tasks"][0]["template"]["metadata"]["annotations"]
    annotations[keys.RUN_SECONDS] = "600"
    user.apply(
        document(kinds.JOB_TEMPLATES, "server", server),
        document(kinds.JOB_TEMPLATES, "client", job_spec()),
        document(
            kinds.JOB_FLOWS,
            "both",
            {
                "flows": [
                    {"name": "server"},
                    {"name": "client", "dependsOn": {"targets": ["server"], "probe": probe}},
                ]
            },
        ),
    )
    flow = user.until(
        lambda: user.get("jobflows/both"),
        lambda it: it.get("status", {}).get("completedJobs") == ["both-client"],
    )
    assert flow["status"]["runningJobs"] == ["both-server"]
    user.http.delete("/v1/namespaces/default/jobflows/both").raise_for_status()
    user.until(lambda: user.jobs_of("both"), lambda jobs: jobs == {})


def test_a_cron_creates_one_job_per_scheduled_time(system: System, user: User) -> None:
    """The controller is killed between two times."""
    spec = {
        "schedule": "@every 2s",
        "successfulJobsHistoryLimit": 100,
        "jobTemplate": {"spec": job_spec()},
    }
    user.apply(document(kinds.CRON_JOBS, "tick", spec))
    before = user.until(lambda: user.jobs_of("tick"), lambda jobs: len(jobs) >= 2)
    system.kill_controller()
    user.until(lambda: user.jobs_of("tick"), lambda jobs: len(jobs) >= len(before) + 2)
    user.apply(document(kinds.CRON_JOBS, "tick", {"suspend": True}))

    def read() -> tuple[Document, dict[str, Document]]:
        return user.get("cronjobs/tick")["status"], user.jobs_of("tick")

    status, jobs = user.until(read, is_quiet)
    uids = {name: job["metadata"]["uid"] for name, job in jobs.items()}
    assert uids.items() >= {name: job["metadata"]["uid"] for name, job in before.items()}.items()
    seconds = sorted(time_of(name) for name in jobs)
    steps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
    assert all(step % 2 == 0 for step in steps)
    assert seconds_of(status["lastSuccessfulTime"]) > seconds_of(status["lastScheduleTime"])


def time_of(job: str) -> int:
    """Seconds of the time that a cron's job was made for."""
    number = int(job.rpartition("-")[2])
    return number if number >= 10**9 else 60 * number


def seconds_of(text: str) -> float:
    """Seconds of a time in a status."""
    return datetime.fromisoformat(text).timestamp()


def is_quiet(found: tuple[Document, dict[str, Document]]) -> bool:
    """Whether every job is over, and the status has the last one."""
    status, jobs = found
    last = seconds_of(status["lastScheduleTime"])
    phases = {state(job) for job in jobs.values()}
    return not status.get("active") and phases == {"Completed"} and last == max(map(time_of, jobs))
