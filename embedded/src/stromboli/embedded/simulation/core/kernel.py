"""The simulation: a heap of events, a virtual clock, and the steps at each time of an event.

Theory
------
Time jumps from event to event. At each time, in this order: tasks end, nodes fail and return, jobs
arrive, and then sessions run until no session is due. A session's decisions are executed at the
same time, and what they change may make another session due: an admission to a queue creates pods,
an eviction frees room. Pods start when they are bound and end after their duration. With
``pause_us`` a session runs no earlier than this time after the last one, as in the service.

Rules of the life cycle, which are those of the controller's core (``controller.core.lifecycle``):

1. Pods are created when the PodGroup is admitted to its queue. A configuration without the action
   ``enqueue`` admits none; then pods are created with the job.
2. A task that loses its pod gets another one and waits. If the job then has fewer tasks than
   ``min_available`` that run or succeeded, it is restarted: the rest of its pods are deleted, and
   a new PodGroup enters the queue. This is a job with the policy ``PodEvicted: RestartJob``.
3. A restarted job starts from the beginning or, with ``keeps_progress``, continues from the point
   of the interruption.
4. A job is completed when all of its tasks have succeeded. Its objects are then deleted.
5. The tasks of a synchronous job hold their nodes from their start, and make progress only while
   all of them run.
6. A task whose data sets are not on its node holds the node, and makes no progress until they are.
7. With a model of the hardware, tasks that start to make progress take longer by a factor.

Sessions run only when the scheduler's triggers request one, or at a time that a plugin requests.
Where all decisions depend on nodes alone, as in the default configuration without
AdvanceReservations, such times only refresh the numbers in explanations and are skipped.

Invariants: used resources of a node never exceed its capacity (``test_simulation_properties``), and
events are processed in the order of time, kind and creation, so the same input gives the same
result. Cost: the sessions at each distinct time of a relevant event, and O(log n) per event.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from stromboli.embedded.simulation.core import (
    data_caches,
    job_runs,
    measurements,
    objects,
    workload,
)
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cache import unschedulable
from stromboli.scheduler.core.forecast import gang_pods, virtual_scheduler
from stromboli.scheduler.core.framework import opening
from stromboli.shared.api import meta
from stromboli.shared.messages import data
from stromboli.shared.messages import scheduling as messages

_TASKS_END, _NODE_FAILS, _NODE_RETURNS, _EVICTION_DUE, _FETCH_ENDS = range(5)
MOST_IDLE_WAKES = 1000
"""Consecutive sessions at requested times, without a decision and without a queued event, after
which the simulation ends. A window of the plugin tdm opens daily, so this is years."""
MOST_SESSIONS_AT_ONCE = 200
"""Maximum sessions at one virtual time. Beyond it, jobs evict each other in a cycle: the next
session then runs a second later, so that virtual time advances."""
MOST_FRUITLESS_EVICTIONS = 100
"""Consecutive evictions per unfinished job, without a job that ends or arrives, after which the
simulation ends because jobs only evict each other."""

Finished = Callable[[job_runs.JobRun], None]
T = TypeVar("T", bound=meta.Object)


class Simulation:
    """One simulation. Call ``run`` once."""

    def __init__(
        self,
        scenario: workload.Scenario,
        on_finished: Finished = lambda run: None,
        find: opening.FindPlugin = plugins.find,
    ) -> None:
        self._options = scenario.options
        self._jobs = iter(scenario.jobs)
        self._on_finished = on_finished
        self.scheduler = virtual_scheduler.Scheduler(
            scenario.options.configured, find, scenario.options.seed
        )
        self.measured = measurements.Measurements()
        self.runs: dict[str, job_runs.JobRun] = {}
        """PodGroup -> job, of all jobs that have not finished."""
        self.now_us = 0
        self.stopped = ""
        """Why the simulation stopped before all jobs finished; empty if they did."""
        self._heap: list[tuple[int, int, int, Any]] = []
        self._order = 0
        self._made = 0
        self._groups = {name: group for group in scenario.nodes for name in group.names()}
        self.caches = data_caches.DataCaches(self._groups)
        self._hardware = scenario.hardware
        self._tasks_on: dict[str, dict[job_runs.TaskRun, job_runs.JobRun]] = {}
        self._priorities: set[int] = set()
        self._queues: set[str] = set()
        self._no_session_before_us = 0
        self._fruitless = self._idle_wakes = 0
        self._skips_wakes = (
            unschedulable.depends_on_nodes_only(scenario.options.configured)
            and not scenario.reservations
        )
        self._build(scenario)
        self._next_job = next(self._jobs, None)

    def run(self) -> None:
        """Simulate until all jobs have finished, no event is left, or ``until_us``."""
        while self.step():
            pass
        if not self.stopped and self.runs:
            self.stopped = "no event is left"
        self.measured.close(self.now_us)

    def step(self) -> bool:
        """Advance to the next time of an event, and do everything that happens at this time.

        Returns False, and does nothing, if the simulation is over.
        """
        at_us, is_wake = self._next_time()
        if at_us == workload.NEVER_US or self.stopped or self._idle_wakes >= MOST_IDLE_WAKES:
            return False
        if at_us > self._options.until_us:
            self.now_us = max(self.now_us, self._options.until_us)
            self.stopped = "the time of --until is reached"
            return False
        self.now_us = max(self.now_us, at_us)
        self._process_events()
        if is_wake:
            self.scheduler.request_session()
        has_decided = self._run_sessions()
        self._update_caches()
        is_idle = is_wake and not (has_decided or self._heap or self._next_job is not None)
        self._idle_wakes = self._idle_wakes + 1 if is_idle else 0
        return True

    # Time

    def _next_time(self) -> tuple[int, bool]:
        """The time of the next event, and whether it is only a session at a requested time."""
        at_us = self._heap[0][0] if self._heap else workload.NEVER_US
        if self._next_job is not None:
            at_us = min(at_us, self._next_job.submit_us)
        if self.scheduler.is_due:
            return min(at_us, max(self.now_us, self._no_session_before_us)), False
        wake_at = None if self._skips_wakes or not self.runs else self.scheduler.wake_at
        if wake_at is not None and (wake_us := workload.time_of(wake_at)) < at_us:
            return max(wake_us, self.now_us), True
        return at_us, False

    def _push(self, at_us: int, kind: int, what: Any) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at_us, kind, self._order, what))

    def _process_events(self) -> None:
        while self._heap and self._heap[0][0] <= self.now_us:
            _, kind, _, what = heapq.heappop(self._heap)
            if kind == _TASKS_END:
                self._end_tasks(*what)
            elif kind == _NODE_FAILS:
                self._fail_node(what)
            elif kind == _NODE_RETURNS:
                self._return_node(what)
            elif kind == _FETCH_ENDS:
                self._end_fetch(what)
            else:
                self._lose_tasks(*what)
        while self._next_job is not None and self._next_job.submit_us <= self.now_us:
            self._submit(self._next_job)
            self._next_job = next(self._jobs, None)

    def _run_sessions(self) -> bool:
        """Run sessions at this time until none is due; return whether one decided anything."""
        has_decided = False
        for _ in range(MOST_SESSIONS_AT_ONCE):
            if not self.scheduler.is_due or self._no_session_before_us > self.now_us:
                break
            decisions = self._decide()
            has_decided |= bool(decisions)
            for statement in decisions:
                self._execute(statement)
            self._process_events()
            self._no_session_before_us = self.now_us + self._options.pause_us
        else:
            self._no_session_before_us = self.now_us + workload.SECOND_US
        if self._options.interval_us and has_decided:
            interval_us = max(self._options.interval_us, self._options.pause_us)
            self._no_session_before_us = self.now_us + interval_us
        return has_decided

    def _decide(self) -> tuple[messages.StatementDecided, ...]:
        is_sampled = self.measured.needs_sample(self.now_us)
        at = workload.datetime_at(self.now_us)
        decisions = self.scheduler.decide(at, with_gauges=is_sampled)
        self.measured.explained(self.scheduler.waiting_by_tier, self.now_us)
        if is_sampled:
            self.measured.sample(self.scheduler.gauges, self.scheduler.total(), self.now_us)
        return decisions

    # Cluster

    def _build(self, scenario: workload.Scenario) -> None:
        for queue in objects.with_standard_queues(scenario.queues):
            self._put(queue)
            self._queues.add(queue.metadata.name)
        for name, group in self._groups.items():
            self._put(objects.node(group, name))
            self.measured.add_node(name, group.resources.amounts(), 0)
            self._tasks_on[name] = {}
        for name in self.caches.nodes:
            self._report_data(name)
        self._put_all(scenario.reservations)
        self._put_all(self._hardware.objects() if self._hardware else ())
        for failure in scenario.failures:
            self._push(failure.down_us, _NODE_FAILS, failure.node)
            if failure.up_us < workload.NEVER_US:
                self._push(failure.up_us, _NODE_RETURNS, failure.node)

    def _fail_node(self, name: str) -> None:
        if name not in self.measured.nodes:
            return
        lost: dict[job_runs.JobRun, list[job_runs.TaskRun]] = {}
        for task, run in self._tasks_on[name].items():
            lost.setdefault(run, []).append(task)
        for run, tasks in lost.items():
            self._lose_tasks(run, [(task, task.started_us) for task in tasks])
        self.measured.remove_node(name, self.now_us)
        self.caches.clear(name)
        if name in self.caches.nodes:
            self._report_data(name)
        node = objects.node(self._groups[name], name, is_ready=False)
        self._put(node)

    def _return_node(self, name: str) -> None:
        if name in self.measured.nodes:
            return
        group = self._groups[name]
        self.measured.add_node(name, group.resources.amounts(), self.now_us)
        self._put(objects.node(group, name))

    # Data sets

    def _update_caches(self) -> None:
        """Notify caches of the data that their nodes should have, and the scheduler of copies."""
        for name, wanted in self.scheduler.wanted_data().items():
            if name not in self.caches.nodes:
                continue
            items = () if wanted is None else wanted.items
            message = data.DataWanted(node=name, items=items)
            self._begin_fetch(self.caches.set_wanted(message, self.now_us))
            self._report_data(name)

    def _begin_fetch(self, fetch: data_caches.Fetch | None) -> None:
        if fetch is not None:
            self._push(fetch.end_us, _FETCH_ENDS, fetch)

    def _end_fetch(self, fetch: data_caches.Fetch) -> None:
        was_going, after = self.caches.finish(fetch, self.now_us)
        self._begin_fetch(after)
        if not was_going:
            return
        self._report_data(fetch.node)
        for task, run in list(self._tasks_on[fetch.node].items()):
            if task.lacks_data and self._has_data(run, task):
                task.lacks_data = False
                run.fetching -= 1
                self.measured.data_arrived(self.now_us - task.started_us)
                if run.makes_progress:
                    self._let_progress(run, run.tasks if run.job.is_synchronous else [task])

    def _has_data(self, run: job_runs.JobRun, task: job_runs.TaskRun) -> bool:
        return self.caches.has(task.node, (each.key for each in run.job.data_sets))

    def _report_data(self, node: str) -> None:
        at = workload.datetime_at(self.now_us)
        self.scheduler.report_data(self.caches.report(node, self.now_us), at)

    # Jobs

    def _submit(self, job: workload.Job) -> None:
        if job.priority and job.priority not in self._priorities:
            self._priorities.add(job.priority)
            self._put(objects.priority_class(job.priority))
        if job.queue not in self._queues:
            self._queues.add(job.queue)
            self._put(objects.queue(job.queue))
        run = job_runs.JobRun(job, self.measured.jobs)
        if run.key in self.runs:
            raise ValueError(f"two jobs with the name {job.name} at the same time")
        self.runs[run.key] = run
        self.measured.submitted(run, self.now_us)
        self._fruitless = 0
        run.advance()
        self._create_group(run)

    def _create_group(self, run: job_runs.JobRun) -> None:
        run.attempts += 1
        phase = "Pending" if self.scheduler.enqueues else "Inqueue"
        created = self._timestamp()
        group = objects.pod_group(run.job, self._uid(), created, run.min_member, phase)
        run.group = self._put(group)
        if not self.scheduler.enqueues:
            self._create_pods(run)

    def _create_pods(self, run: job_runs.JobRun) -> None:
        for task in run.tasks:
            if task.state == "pending" and task.pod is None:
                pod = objects.pod(run.job, task.index, self._uid(), self._timestamp())
                task.pod = self._put(pod)

    def _timestamp(self) -> datetime:
        """The present time as in API objects: whole seconds."""
        return workload.datetime_at(self.now_us // workload.SECOND_US * workload.SECOND_US)

    def _uid(self) -> str:
        self._made += 1
        return f"{self._made:012}"

    def _set_group_phase(self, run: job_runs.JobRun, phase: str) -> None:
        assert run.group is not None, f"{run.key} has no PodGroup"
        if run.group.status.phase != phase:
            group = objects.with_phase(run.group, phase, run.running, run.succeeded)
            run.group = self._put(group)

    def _end_tasks(self, run: job_runs.JobRun, tasks: list[tuple[job_runs.TaskRun, int]]) -> None:
        ended = [task for task, since_us in tasks if task.progress_us == since_us]
        if not ended:
            return
        for task in ended:
            run.task_us += self.now_us - task.started_us
            task.state, task.remaining_us, task.progress_us = "succeeded", 0, -1
            self._free(run, task)
        self.measured.released(run, [task.node for task in ended], self.now_us)
        run.running -= len(ended)
        run.succeeded += len(ended)
        run.advance()
        if run.is_finished:
            self._finish(run)
            return
        for task in ended:
            assert task.pod is not None, f"a running task of {run.key} has no pod"
            task.pod = self._put(gang_pods.succeeded(task.pod, self._timestamp()))

    def _finish(self, run: job_runs.JobRun) -> None:
        self._delete_objects(run)
        run.end_us = self.now_us
        run.spans_us.append((run.started_us, self.now_us))
        del self.runs[run.key]
        self._fruitless = 0
        self.measured.finished(run, self.now_us)
        self._on_finished(run)

    def _delete_objects(self, run: job_runs.JobRun) -> None:
        at = workload.datetime_at(self.now_us)
        for task in run.tasks:
            if task.pod is not None:
                self.scheduler.remove(task.pod, at)
                task.pod = None
        if run.group is not None:
            self.scheduler.remove(run.group, at)
            run.group = None

    # Decisions

    def _execute(self, statement: messages.StatementDecided) -> None:
        run = self.runs[statement.pod_group]
        if statement.enqueue:
            self._set_group_phase(run, "Inqueue")
            self._create_pods(run)
        if statement.evictions:
            self._evict(statement)
        if statement.binds:
            self._bind(run, statement.binds)

    def _bind(self, run: job_runs.JobRun, binds: tuple[messages.Bind, ...]) -> None:
        by_name = {objects.pod_name(run.job, task.index): task for task in run.tasks}
        nodes, bound = [], []
        for bind in binds:
            task = by_name[bind.pod]
            assert task.pod is not None, f"{bind.pod} was bound and does not exist"
            pod = gang_pods.running(task.pod, bind.node, self._timestamp())
            task.state, task.node, task.started_us = "running", bind.node, self.now_us
            self._hold(run, task)
            task.lacks_data = not self._has_data(run, task)
            run.fetching += task.lacks_data
            if run.job.data_sets and not task.lacks_data:
                self.measured.data_arrived(0)
            task.pod = self._put(pod)
            nodes.append(bind.node)
            bound.append(task)
        run.running += len(binds)
        self.measured.placed(run, nodes, self.now_us)
        if run.advance() and run.phase == "Running":
            self.measured.started(run, self.now_us)
            run.started_us = self.now_us
            if run.first_start_us < 0:
                run.first_start_us = self.now_us
        if not run.falls_short:
            self._set_group_phase(run, "Running")
        if run.makes_progress:
            self._let_progress(run, run.tasks if run.job.is_synchronous else bound)

    def _let_progress(self, run: job_runs.JobRun, tasks: list[job_runs.TaskRun]) -> None:
        """Let the running ones of these tasks make progress from now on."""
        ends: dict[int, list[tuple[job_runs.TaskRun, int]]] = {}
        slowdown = run.slowdown_on(self._hardware)
        for task in tasks:
            if task.state == "running" and task.progress_us < 0 and not task.lacks_data:
                end_us = task.let_progress(self.now_us, slowdown)
                ends.setdefault(end_us, []).append((task, self.now_us))
        for end_us, ending in ends.items():
            self._push(end_us, _TASKS_END, (run, ending))

    def _evict(self, statement: messages.StatementDecided) -> None:
        by_job: dict[tuple[job_runs.JobRun, int], list[tuple[job_runs.TaskRun, int]]] = {}
        for each in statement.evictions:
            run, task = self._task_of(each)
            notice_us = round(each.notice_s * workload.SECOND_US)
            by_job.setdefault((run, notice_us), []).append((task, task.started_us))
        for (run, notice_us), tasks in by_job.items():
            self._push(self.now_us + notice_us, _EVICTION_DUE, (run, tasks))
        self._fruitless += len(by_job)
        if self._fruitless > MOST_FRUITLESS_EVICTIONS * (len(self.runs) + 1):
            self.stopped = "jobs only evict each other: no job ends"

    def _task_of(self, each: messages.Eviction) -> tuple[job_runs.JobRun, job_runs.TaskRun]:
        pod = self.scheduler.cache.model.tasks[f"{each.namespace}/{each.pod}"]
        run = self.runs[pod.job]
        return run, run.tasks[int(each.pod.rpartition("-")[2])]

    def _lose_tasks(self, run: job_runs.JobRun, tasks: list[tuple[job_runs.TaskRun, int]]) -> None:
        """Delete the pods of tasks that still run, and apply rules 2 and 3."""
        lost = [task for task, started_us in tasks if task.still_runs(started_us)]
        if not lost:
            return
        run.evictions += 1
        run.evicted_tasks += len(lost)
        self.measured.evicted(run, len(lost), self.now_us)
        was_running = run.phase == "Running"
        self._stop(run, lost)
        if run.falls_short and was_running:
            self._stop(run, [task for task in run.tasks if task.state == "running"])
            self._restart(run)
        else:
            self._create_pods(run)

    def _restart(self, run: job_runs.JobRun) -> None:
        self._delete_objects(run)
        if not self._options.keeps_progress:
            run.succeeded = 0
            for task in run.tasks:
                task.state, task.remaining_us = "pending", run.job.duration_us
        self.measured.interrupted(run, self.now_us)
        run.spans_us.append((run.started_us, self.now_us))
        run.restart()
        self._create_group(run)

    def _stop(self, run: job_runs.JobRun, tasks: list[job_runs.TaskRun]) -> None:
        at = workload.datetime_at(self.now_us)
        self.measured.released(run, [task.node for task in tasks], self.now_us)
        for task in tasks:
            assert task.pod is not None, f"a running task of {run.key} has no pod"
            self.scheduler.remove(task.pod, at)
            self._free(run, task)
            run.task_us += self.now_us - task.started_us
            task.pause(self.now_us)
            if not self._options.keeps_progress:
                task.remaining_us = run.job.duration_us
            task.state, task.node, task.pod = "pending", "", None
            run.fetching -= task.lacks_data
            task.lacks_data = False
        run.running -= len(tasks)
        if run.job.is_synchronous:
            for task in run.tasks:
                task.pause(self.now_us)

    def _hold(self, run: job_runs.JobRun, task: job_runs.TaskRun) -> None:
        """Record that the task holds its node from now on."""
        self._tasks_on[task.node][task] = run
        self._put_all(run.placed_on(self._hardware, task))

    def _free(self, run: job_runs.JobRun, task: job_runs.TaskRun) -> None:
        """Record that the task no longer holds its node."""
        del self._tasks_on[task.node][task]
        self._put_all(run.released_on(self._hardware, task))

    def _put(self, obj: T) -> T:
        """Give an object to the scheduler; return the one it keeps: two would double the memory."""
        return self.scheduler.put(obj, workload.datetime_at(self.now_us))

    def _put_all(self, objs: Iterable[meta.Object]) -> None:
        for each in objs:
            self._put(each)

    def unfinished(self) -> Iterator[tuple[job_runs.JobRun, str, str]]:
        """Yield each unfinished job with tier and text of the scheduler's explanation."""
        for run in self.runs.values():
            yield run, *self.scheduler.reason(run.key)
