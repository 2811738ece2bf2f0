"""A user with a REST client and a command line, and the jobs that they submit."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from stromboli.client import server
from stromboli.client.events import Change
from stromboli.shared import keys
from stromboli.shared.api.batch import Job
from tests.e2e.support import polling

WITHIN_S = 120.0
LONG_S = 600.0
SPACE = "/v1/namespaces/default/jobs"
STROM = Path(sys.executable).with_name("strom")
Document = dict[str, Any]


class User:
    """A user with a REST client and a command line."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.once = ""
        self.key = str(uuid.uuid4())
        """Of a request that may be sent again."""
        self.changes: Iterator[Change[Job]] = iter(())
        self._http = httpx.Client(**server.httpx_options(url, 30))

    def close(self) -> None:
        self._http.close()

    def submit(self, *jobs: Document) -> None:
        for job in jobs:
            answer = self._http.post(SPACE, json=job)
            assert answer.status_code == 201, answer.text

    def refused(self, job: Document) -> list[str]:
        """The paths of what is wrong with it."""
        answer = self._http.post(SPACE, json=job)
        assert answer.status_code == 422, answer.text
        return [found["path"] for found in answer.json()["violations"]]

    def submit_once(self, job: Document, key: str) -> str:
        """The name of the job that this request creates, however often it is sent, also if the log
        that stores the answer is unavailable for a moment.
        """
        headers = {"Idempotency-Key": key}
        answer = self.until(
            lambda: self._http.post(SPACE, json=job, headers=headers),
            lambda found: found.status_code != httpx.codes.SERVICE_UNAVAILABLE,
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["metadata"]["name"])

    def strom(self, *arguments: str) -> str:
        """What a command of ``strom`` prints. Raises CalledProcessError, with its error as text."""
        command = [str(STROM), *arguments, "--server", self._url]
        try:
            return str(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise

    def ask(self, name: str, verb: str, **body: Any) -> None:
        self._http.post(f"{SPACE}/{name}/{verb}", json=body or None).raise_for_status()

    def apply(self, *documents: Document) -> None:
        answer = self._http.post("/v1/apply", json={"objects": documents})
        assert answer.status_code == 200, answer.text

    def delete(self, name: str, *, may_be_gone: bool = False) -> None:
        answer = self._http.delete(f"{SPACE}/{name}")
        if not (may_be_gone and answer.status_code == httpx.codes.NOT_FOUND):
            answer.raise_for_status()

    def get(self, name: str, what: str = "") -> Any:
        return self._http.get(f"{SPACE}/{name}{what}").raise_for_status().json()

    def names(self) -> list[str]:
        items = self._http.get(SPACE).raise_for_status().json()["items"]
        return [item["metadata"]["name"] for item in items]

    def job_phases(self) -> dict[str, str]:
        """The phase of each job."""
        return {
            item["metadata"]["name"]: item.get("status", {}).get("state", {}).get("phase", "")
            for item in self._http.get(SPACE).raise_for_status().json()["items"]
        }

    def queue(self, name: str) -> Document:
        found = self._http.get(f"/v1/queues/{name}").raise_for_status().json()
        status: Document = found.get("status", {})
        return status

    def phases(self, *pods: str) -> list[str]:
        """Of pods that are no job's."""
        found = {item["metadata"]["name"]: item["status"]["phase"] for item in self._all("pods")}
        return [found[name] for name in pods]

    def owned(self, plural: str, owner: str) -> list[Document]:
        """Objects that the owner of this uid manages."""
        return [
            item
            for item in self._all(plural)
            if any(it["uid"] == owner for it in item["metadata"].get("ownerReferences", []))
        ]

    def nodes(self) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self._all("nodes"))

    def _all(self, plural: str) -> list[Document]:
        items: list[Document] = self._http.get(f"/v1/{plural}").raise_for_status().json()["items"]
        return items

    def status(self, name: str) -> Document:
        found: Document = self.get(name).get("status", {})
        return found

    def pods(self, name: str) -> list[Document]:
        found: list[Document] = self.get(name, "/pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def await_history(self) -> None:
        """Return when the history answers: it starts with its first query, which may end before."""
        self.until(
            lambda: self._http.get("/v1/history/attempts").status_code,
            lambda status: status == httpx.codes.OK,
        )

    def until(self, read: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        """See ``polling.until``."""
        return polling.until(read, wanted, WITHIN_S)

    def phase(self, name: str) -> str:
        found: str = self.status(name).get("state", {}).get("phase", "")
        return found

    def comes_to(self, name: str, phase: str) -> Document:
        """Its status, once it is in this phase. A failure says what the scheduler waits for."""
        try:
            self.until(lambda: self.phase(name), lambda now: now == phase)
        except AssertionError as error:
            error.add_note(str(self.get(name, "/explanation")))
            raise
        return self.status(name)


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


def queue(name: str, **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, **spec},
    }
