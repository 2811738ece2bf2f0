"""Checks restarts, life-cycle policies and flows, from the history of an API server.

Shares no code with the system, like ``invariants``. The rules:

* **Reason**: a retry is spent only after a pod of the job's previous version failed.
* **Succession**: pods of two versions of one job never have nodes at the same time.
* **Completion**: a job that ends with a task (*TaskCompleted* -> *CompleteJob*) completes after
  all pods of that task succeeded.
* **End**: no pod of a finished job is left alive, unless it is being deleted.
* **Order**: a flow creates a job after its targets have completed, each job once, and succeeds.

The first and the third rule require all events of a job; they are not applied to jobs for which a
list replaced missed events.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from stromboli.testkit.checkers import invariants

Event = dict[str, Any]
Object = dict[str, Any]
Version = tuple[str, int]
"""(uid of a job, one of its versions)."""

FINISHED = ("Completed", "Failed")


class JobLifecycleChecker:
    """The state of all jobs and flows after each event."""

    def __init__(self) -> None:
        self._jobs: dict[str, Object] = {}
        self._flows: dict[str, Object] = {}
        self._pods: dict[str, Object] = {}
        self._retries: dict[str, int] = {}
        self._failed: set[Version] = set()
        self._succeeded: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._bound: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._made: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._unseen: set[str] = set()
        """Jobs for which events may be missing."""

    def take(self, event: Event) -> Iterator[str]:
        """Apply one event; yield the violations that it causes."""
        thing = event["object"]
        uid, is_gone = thing["metadata"]["uid"], event["type"] == "DELETED"
        if thing["kind"] == "JobFlow":
            self._flows[uid] = thing
        elif thing["kind"] == "Job":
            if event.get("listed"):
                self._unseen.add(uid)
            yield from self._take_job(thing, is_new=uid not in self._jobs)
        elif thing["kind"] == "Pod" and (job := invariants.job_of(thing)):
            if event.get("listed"):
                self._unseen.add(job)
            yield from self._take_pod(job, thing, is_gone=is_gone)

    def _take_job(self, job: Object, *, is_new: bool) -> Iterator[str]:
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        if is_new:
            yield from self._take_flow_job(job)
        status = job.get("status", {})
        before, retries = self._retries.get(uid, 0), status.get("retryCount", 0)
        self._jobs[uid], self._retries[uid] = job, retries
        is_seen = uid not in self._unseen
        earlier = uid, status.get("version", 0) - 1
        if retries > before and is_seen and earlier not in self._failed:
            yield f"job {name} was retried and no pod of its version {earlier[1]} had failed"
        if is_seen and invariants.phase_of(job) in ("Completing", "Completed"):
            for task in job["spec"]["tasks"]:
                count = len(self._succeeded[uid, task["name"]])
                if _completes_job(task) and count < task["replicas"]:
                    line = (
                        f"{count} of {task['replicas']} pods of task {task['name']} had succeeded"
                    )
                    yield f"job {name} completed when {line}"

    def _take_flow_job(self, job: Object) -> Iterator[str]:
        name = job["metadata"]["name"]
        for flow in filter(None, map(self._flows.get, owners(job, "JobFlow"))):
            made = self._made[flow["metadata"]["uid"], name]
            made.add(job["metadata"]["uid"])
            flow_name = flow["metadata"]["name"]
            if len(made) > 1:
                yield f"flow {flow_name} created job {name} {len(made)} times"
            for target in _targets(flow, name):
                if not self._has_completed(flow, target) and not self._unseen:
                    yield f"flow {flow_name} created job {name} before {target} had completed"

    def _has_completed(self, flow: Object, name: str) -> bool:
        return any(
            job["metadata"]["name"] == name
            and flow["metadata"]["uid"] in owners(job, "JobFlow")
            and invariants.phase_of(job) == "Completed"
            for job in self._jobs.values()
        )

    def _take_pod(self, job: str, pod: Object, *, is_gone: bool) -> Iterator[str]:
        uid, phase = pod["metadata"]["uid"], pod.get("status", {}).get("phase")
        version = int(invariants.mark(pod, invariants.VERSION) or 0)
        if phase == "Failed":
            self._failed.add((job, version))
        elif phase == "Succeeded":
            task = invariants.mark(pod, invariants.TASK)
            self._succeeded[job, task].add(invariants.mark(pod, invariants.INDEX))
        self._pods.pop(uid, None)
        if not is_gone:
            self._pods[uid] = pod
        bound = self._bound[job]
        bound[version].discard(uid)
        if not is_gone and phase not in invariants.FINAL_PHASES and pod["spec"].get("nodeName"):
            bound[version].add(uid)
            others = [other for other, pods in bound.items() if pods and other != version]
            if others:
                both = f"versions {min(*others, version)} and {max(*others, version)}"
                yield f"job {self._name(job)} has pods of {both} on nodes"

    def _name(self, job: str) -> str:
        found = self._jobs.get(job)
        return str(found["metadata"]["name"]) if found else job

    def end(self) -> Iterator[str]:
        """Yield the violations at the end of the history."""
        for pod in invariants.live_pods(self._pods.values()):
            job = self._jobs.get(invariants.job_of(pod))
            is_ending = pod["metadata"].get("deletionTimestamp") is not None
            if job and not is_ending and invariants.phase_of(job) in FINISHED:
                yield f"pod {pod['metadata']['name']} outlives job {job['metadata']['name']}"
        for flow in self._flows.values():
            phase = flow.get("status", {}).get("state", {}).get("phase", "")
            if phase != "Succeed":
                yield f"flow {flow['metadata']['name']} is {phase or 'without a phase'}"


def owners(thing: Object, kind: str) -> list[str]:
    """Uids of an object's owners of one kind."""
    references = thing["metadata"].get("ownerReferences") or ()
    return [str(owner["uid"]) for owner in references if owner["kind"] == kind]


def _completes_job(task: Object) -> bool:
    return any(
        (policy.get("event"), policy.get("action")) == ("TaskCompleted", "CompleteJob")
        for policy in task.get("policies") or ()
    )


def _targets(flow: Object, job: str) -> Iterator[str]:
    """Names of the jobs that come before a job of the flow."""
    prefix = f"{flow['metadata']['name']}-"
    for entry in flow["spec"]["flows"]:
        if f"{prefix}{entry['name']}" == job:
            for target in (entry.get("dependsOn") or {}).get("targets") or ():
                yield f"{prefix}{target}"


def violations(history: Iterable[Event]) -> list[str]:
    """Return all violations about restarts, policies and flows in order; empty if there are
    none."""
    checker, found = JobLifecycleChecker(), list[str]()
    for event in history:
        found += (line for line in checker.take(event) if line not in found)
    return [*found, *checker.end()]
