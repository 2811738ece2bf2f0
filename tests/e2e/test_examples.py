"""The examples unchanged: admitted, scheduled and run to their end in one system.

Nodes are simulated for all of them; those that need only a shell also run as processes, and so do
the commands with which Cromwell submits its calls.
"""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.client import server
from tests.e2e import conftest
from tests.e2e.support import polling
from tests.examples import manifests
from tests.examples.manifests import Document

WITHIN_S = 240.0
RULES = """
rules:
- {match: {job: retry}, runSeconds: 0.1, exitCode: 1}
- {match: {job: demo}, runSeconds: 600}
default: {runSeconds: 0.3}
"""
"""How long pods run and how they end, where that does not follow from the manifests."""

ENDS = {
    "arena": {"Job demo": "Running"},  # it serves until it is deleted
    "array": {"Job sweep": "Completed"},
    "cron": {"CronJob nightly-report": "due"},
    "elastic": {"Job elastic": "Completed"},
    "flow": {"JobFlow nightly": "Succeed"},
    "gang": {"Job gang": "Completed"},
    "hello": {"Job hello": "Completed"},
    "horovod": {"Job horovod": "Completed"},
    "mpi": {"Job mpi": "Completed"},
    "mxnet": {"Job mxnet": "Completed"},
    "paddle": {"Job paddle": "Completed"},
    "priority": {"Job routine": "Completed", "Job urgent": "Completed"},
    "pytorch": {"Job pytorch": "Completed"},
    "ray": {"Job ray": "Completed"},
    "retry": {"Job retry": "Failed"},
    "ring": {"Job ring": "Completed"},
    "spark": {f"Pod spark-{name}": "Succeeded" for name in ("driver", "executor-0", "executor-1")},
    "tensorflow": {"Job tensorflow": "Completed"},
}


class User:
    """A user with a REST client."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(**server.httpx_options(url, 60))

    def apply(self, *documents: Document) -> None:
        answer = self.http.post("/v1/apply", json={"objects": documents})
        assert answer.is_success, answer.text

    def get(self, path: str) -> Any:
        return self.http.get(f"/v1/{path}").raise_for_status().json()

    def until(self, read: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        """See ``polling.until``."""
        return polling.until(read, wanted, WITHIN_S)

    def state(self, thing: str) -> str:
        """The state of an object such as ``Job gang``, as one word."""
        kind, name = thing.split()
        if kind == "Pod":
            found = self.get("pods")["items"]
            (pod,) = (each for each in found if each["metadata"]["name"] == name)
            return str(pod["status"]["phase"])
        status = self.get(f"namespaces/default/{kind.lower()}s/{name}").get("status") or {}
        if kind == "CronJob":
            return "due" if not status.get("active") else "running"
        return str((status.get("state") or {}).get("phase", ""))

    def log(self, pod: str) -> str:
        return self.http.get(f"/v1/namespaces/default/pods/{pod}/log").raise_for_status().text


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A system with room for most examples at the same time, to which all of them are submitted."""
    state = tmp_path_factory.mktemp("examples")
    rules = state / "rules.yaml"
    rules.write_text(RULES)
    with conftest.embedded(state, "--nodes", "4", "--cpu", "8", "--rules", str(rules)) as running:
        made = User(running.url)
        for path in manifests.FILES:
            made.apply(*manifests.read(path.stem))
        yield made
        made.http.close()


@pytest.mark.parametrize("name", [path.stem for path in manifests.FILES])
def test_an_example_is_scheduled_and_finishes(user: User, name: str) -> None:
    for thing, end in ENDS[name].items():
        user.until(functools.partial(user.state, thing), end.__eq__)


def test_the_cron_creates_a_job_that_completes(user: User) -> None:
    """Its scheduled time is at night; the job that it would create is submitted now."""
    (cron,) = manifests.read("cron")
    job = {
        "apiVersion": cron["apiVersion"],
        "kind": "Job",
        "metadata": {"name": "tonight", "namespace": "default"},
        "spec": cron["spec"]["jobTemplate"]["spec"],
    }
    user.apply(job)
    user.until(lambda: user.state("Job tonight"), lambda state: state == "Completed")


def test_every_index_of_the_array_has_succeeded(user: User) -> None:
    user.until(lambda: user.state("Job sweep"), lambda state: state == "Completed")
    job = user.get("namespaces/default/jobs/sweep")
    assert job["status"]["array"]["succeeded"] == "0-99"


# --- on process nodes -----------------------------------------------------------------------

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A system whose nodes run commands as processes."""
    state = tmp_path_factory.mktemp("examples-at-work")
    with conftest.embedded(state, "--process-nodes", "2", "--cpu", "16") as running:
        made = User(running.url)
        yield made
        made.http.close()


@needs_linux
@pytest.mark.parametrize(
    ("name", "end", "said"),
    [
        ("hello", "Completed", {"hello-greeter-2": "hello from 2\n"}),
        ("retry", "Failed", {}),
    ],
)
def test_an_example_that_needs_only_a_shell_really_runs(
    worker: User, name: str, end: str, said: dict[str, str]
) -> None:
    worker.apply(*manifests.read(name))
    worker.until(lambda: worker.state(f"Job {name}"), lambda state: state == end)
    assert {pod: worker.log(pod) for pod in said} == said


@needs_linux
def test_the_elastic_job_succeeds_with_five_workers(worker: User) -> None:
    """Any five: the others may have ended with it."""
    worker.apply(*manifests.read("elastic"))
    worker.until(lambda: worker.state("Job elastic"), lambda state: state == "Completed")
    logs = [
        worker.http.get(f"/v1/namespaces/default/pods/elastic-worker-{each}/log")
        for each in range(10)
    ]
    written = {each: log.text for each, log in enumerate(logs) if log.is_success and log.text}
    assert len(written) >= 5
    assert written == {each: f"worker {each} of 10\n" for each in written}


@needs_linux
def test_an_index_of_the_array_really_runs(worker: User) -> None:
    """Three of the hundred: each is a process of its own."""
    (job,) = manifests.read("array")
    job["spec"]["array"]["indexes"] = "7,8,99"
    worker.apply(job)
    worker.until(lambda: worker.state("Job sweep"), lambda state: state == "Completed")
    written = {each: worker.log(f"sweep-point-{each}") for each in (7, 99)}
    assert written == {7: "7 squared is 49\n", 99: "99 squared is 9801\n"}


class Cromwell:
    """Does with the backend's commands what Cromwell does: fills them in and runs them in bash."""

    def __init__(self, folder: Path, url: str) -> None:
        self._text = (manifests.FOLDER / "cromwell.conf").read_text()
        self._folder = folder
        self._url = url
        self.job = ""

    def value(self, key: str) -> str:
        """A string of the configuration."""
        match = re.search(
            rf'^ *{key} = (?:"""(.*?)"""|"(.*?)")$', self._text, re.DOTALL | re.MULTILINE
        )
        assert match
        return (match[1] or match[2]).replace("\\\\", "\\")

    def run(self, key: str) -> subprocess.CompletedProcess[str]:
        """A command, with what Cromwell knows of the call."""
        command = self.value(key)
        assert not re.sub(r"\$\{[a-z_]+\}", "", command).count("}")
        attributes = re.findall(r"\w+ (\w+) = (\S+)", self.value("runtime-attributes"))
        known = {name: value.strip('"') for name, value in attributes} | {
            "job_name": "cromwell_0a1b2c3d_greet",
            "job_id": self.job,
            "cwd": str(self._folder),
            "script": str(self._folder / "script"),
            "out": str(self._folder / "stdout"),
            "err": str(self._folder / "stderr"),
        }
        filled = re.sub(r"\$\{([a-z_]+)\}", lambda name: known[name[1]], command)
        programs = str(Path(sys.executable).parent)
        return subprocess.run(
            ["bash", "-c", filled],
            env={
                "PATH": f"{programs}:/usr/bin:/bin",
                "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],  # holds the token of the server
                "STROM_SERVER": self._url,
            },
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def submit(self, script: str) -> None:
        (self._folder / "script").write_text(script)
        said = self.run("submit")
        assert said.returncode == 0, said.stderr
        match = re.search(self.value("job-id-regex"), said.stdout)
        assert match, said.stdout
        self.job = match[1]


@needs_linux
def test_cromwell_submits_a_call_polls_it_and_reads_its_return_code(
    worker: User, tmp_path: Path
) -> None:
    cromwell = Cromwell(tmp_path, worker.url)
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.05; done"
    cromwell.submit(f"{waits}; echo greetings; echo $? > {tmp_path}/rc")
    job = cromwell.job
    assert cromwell.run("check-alive").returncode == 0
    cromwell.submit((tmp_path / "script").read_text())  # Cromwell was restarted
    assert cromwell.job == job
    go.touch()
    worker.until(lambda: worker.state(f"Job {job}"), lambda state: state == "Completed")
    assert (tmp_path / "rc").read_text() == "0\n"
    assert (tmp_path / "stdout").read_text() == "greetings\n"
    assert cromwell.run("check-alive").returncode != 0


@needs_linux
def test_cromwell_kills_a_call(worker: User, tmp_path: Path) -> None:
    cromwell = Cromwell(tmp_path, worker.url)
    cromwell.submit("sleep 600")
    assert cromwell.run("kill").returncode == 0
    gone = worker.http.get(f"/v1/namespaces/default/jobs/{cromwell.job}").status_code == 404
    assert gone or worker.state(f"Job {cromwell.job}") != "Completed"
    assert cromwell.run("check-alive").returncode != 0
