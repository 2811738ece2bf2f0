"""JobFlows: create jobs from templates, each after the jobs that it depends on. As in Volcano.

::

    Pending ── a job runs or is completed ──▶ Running ── all are completed ──▶ Succeed
       └──────────── a job failed or was terminated ────┴──────────────────▶ Failed

Succeed and Failed are final. The flow's status records the end of each job, so a job that was
deleted after its end is neither missed nor created again.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from stromboli.controller.core import commands, lifecycle
from stromboli.controller.core.store import complete_specs, controller_cache
from stromboli.controller.core.workloads import child_jobs, probes, template_patch
from stromboli.shared import keys
from stromboli.shared.api import batch, flow, kinds
from stromboli.shared.api.flow import JobFlow
from stromboli.shared.jobspec.validation import flows as rules

FINAL = ("Succeed", "Failed")
LONGEST_LABEL = 63
MOST_PHASES = 100
"""Maximum number of recorded phases of a job. A job that is preempted or suspended for weeks goes
through thousands of phases, and the flow's status would become too large for the API server."""
LISTS = {
    "Pending": "pending_jobs",
    "Running": "running_jobs",
    "Failed": "failed_jobs",
    "Completed": "completed_jobs",
    "Terminated": "terminated_jobs",
    "Completing": "",
    "Terminating": "",
}
"""Phase of a job -> the list of the flow's status that names the job. Jobs in other phases are
listed as unknown."""


class Member(msgspec.Struct, frozen=True):
    """One entry of a flow, with the name of its job, the job if it exists, and its recorded
    state."""

    entry: flow.Flow
    name: str
    job: batch.Job | None
    recorded: flow.FlowJobStatus | None

    @property
    def waits(self) -> flow.FlowDependsOn:
        """The dependencies of the job on other jobs of the flow."""
        return self.entry.depends_on or flow.FlowDependsOn()

    @property
    def phase(self) -> str | None:
        """The job's phase, or its final phase if it is deleted; None if there is no such job."""
        if self.job is not None:
            return self.job.status.state.phase
        if self.recorded is not None and self.recorded.state in lifecycle.FINISHED:
            return self.recorded.state
        return None


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Record the state of the jobs, start the jobs whose dependencies are met, and delete the jobs
    of a successful flow if its ``jobRetainPolicy`` is ``delete``.
    """
    job_flow = _ours(cache, key)
    if job_flow is None:
        return _unknown_owner(cache, key, now)
    if job_flow.status.state.phase not in FINAL and not cache.is_complete(job_flow):
        return ((complete_specs.read(kinds.JOB_FLOWS, job_flow),),)
    members = _members(cache, job_flow)
    phase = next_phase(job_flow.status.state.phase, [member.phase for member in members])
    effects: list[commands.Command] = list(_made(job_flow, members, now))
    if phase not in FINAL:
        effects += _starts(cache, job_flow, members, now)
        effects += (ask for ask, at in _questions(cache, job_flow, members) if not at or now >= at)
    elif _is_to_be_cleared(job_flow):
        effects += [
            child_jobs.remove(it.job)
            for it in members
            if it.job is not None and not cache.is_terminating(it.job)
        ]
    status = _status(job_flow, members, phase)
    return child_jobs.status_first(kinds.JOB_FLOWS, job_flow, status, tuple(effects))


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """The time at which to probe pods again that have not passed."""
    job_flow = _ours(cache, key)
    if job_flow is None or job_flow.status.state.phase in FINAL:
        return None
    times = [at or now for _, at in _questions(cache, job_flow, _members(cache, job_flow))]
    return min(times, default=None)


def _ours(cache: controller_cache.ControllerCache, key: str) -> JobFlow | None:
    job_flow = cache.get(kinds.JOB_FLOWS, key)
    if (
        job_flow is None
        or cache.is_terminating(job_flow)
        or not child_jobs.is_flow_ours(cache, job_flow)
    ):
        return None
    return job_flow


def _unknown_owner(
    cache: controller_cache.ControllerCache, key: str, now: datetime
) -> commands.Plan:
    """A Warning for a flow that would be ours if its missing templates were."""
    job_flow = cache.get(kinds.JOB_FLOWS, key)
    if job_flow is None or cache.is_terminating(job_flow):
        return ()
    missing = child_jobs.unknown_templates(cache, job_flow)
    if not missing:
        return ()
    why = (
        f"no job is started: JobTemplate {missing[0]} does not exist, so the flow may belong to "
        "another active batch system: create the template"
    )
    return ((_about(job_flow, "Warning", "SyncJobFlow", why, now),),)


def next_phase(phase: str, jobs: list[str | None]) -> str:
    """The flow's next phase, from the phases of its jobs."""
    if phase in FINAL:
        return phase
    if any(it in ("Failed", "Terminated") for it in jobs):
        return "Failed"
    if jobs and all(it == "Completed" for it in jobs):
        return "Succeed"
    if phase == "Running" or any(it in ("Running", "Completed") for it in jobs):
        return "Running"
    return "Pending"


def spec_of(template: flow.JobTemplate, entry: flow.Flow) -> dict[str, Any]:
    """The spec of the job: the template's spec with the flow's patch applied."""
    spec: dict[str, Any] = msgspec.json.decode(template.spec) or {}
    if entry.patch is not None:
        spec = template_patch.merged(spec, msgspec.json.decode(entry.patch.job_spec) or {})
    return spec


def _members(cache: controller_cache.ControllerCache, job_flow: JobFlow) -> list[Member]:
    """The flow's entries with their jobs. If entries have the same name, the last one counts."""
    jobs = {job.metadata.name: job for job in cache.children(job_flow)}
    recorded = {it.name: it for it in job_flow.status.job_status_list}
    entries = {entry.name: entry for entry in job_flow.spec.flows}
    names = {entry: child_jobs.flow_job_name(job_flow, entry) for entry in entries}
    return [
        Member(entry, names[name], jobs.get(names[name]), recorded.get(names[name]))
        for name, entry in entries.items()
    ]


def _starts(
    cache: controller_cache.ControllerCache, job_flow: JobFlow, members: list[Member], now: datetime
) -> Iterator[commands.Command]:
    wrong = [violation.message for violation in rules.violations(job_flow)]
    if wrong:
        why = f"no job is started: {'; '.join(wrong)}"
        yield _about(job_flow, "Warning", "SyncJobFlow", why, now)
        return
    for member, targets in _waiting(members):
        if all(_is_ready(cache, target, member.waits.probe) for target in targets):
            yield from _start(cache, job_flow, member, now)


def _questions(
    cache: controller_cache.ControllerCache, job_flow: JobFlow, members: list[Member]
) -> Iterator[tuple[commands.RunProbe, datetime | None]]:
    """The probes to run, each with its time; None: immediately."""
    requested: dict[commands.RunProbe, datetime | None] = {}
    for member, targets in _waiting(members):
        probe = member.waits.probe
        for target in targets:
            if probe is None or target.job is None or target.phase != "Running":
                continue
            if not probes.passed(cache, probe, target.job):
                key = job_flow.metadata.key
                requested |= probes.open_questions(cache, key, probe, target.job)
    yield from requested.items()


def _waiting(members: list[Member]) -> Iterator[tuple[Member, list[Member]]]:
    """Members whose jobs do not exist yet, each with its dependencies that are in the flow."""
    by_name = {member.entry.name: member for member in members}
    for member in members:
        if member.phase is None:
            yield member, [by_name[it] for it in member.waits.targets if it in by_name]


def _is_ready(
    cache: controller_cache.ControllerCache, target: Member, probe: flow.Probe | None
) -> bool:
    """Whether the target completed, or runs and passes the probe."""
    if target.phase == "Completed":
        return True
    if probe is None or target.job is None or target.phase != "Running":
        return False
    return probes.concern(probe, target.job) and probes.passed(cache, probe, target.job)


def _start(
    cache: controller_cache.ControllerCache, job_flow: JobFlow, member: Member, now: datetime
) -> Iterator[commands.Command]:
    namespace, template_name = job_flow.metadata.namespace, member.entry.name
    if conflict := child_jobs.name_conflict(cache, job_flow, member.name):
        yield _about(job_flow, "Warning", "FailedCreate", conflict, now)
        return
    template = cache.get(kinds.JOB_TEMPLATES, f"{namespace}/{template_name}")
    if template is None:
        missing = f"JobTemplate {namespace}/{template_name} does not exist"
        why = f"job {member.name} is not created: {missing}"
        yield _about(job_flow, "Warning", "SyncJobFlow", why, now)
        return
    if not cache.is_complete(template):
        yield complete_specs.read(kinds.JOB_TEMPLATES, template)
        return
    marks = {
        keys.CREATED_BY_TEMPLATE: f"{namespace}.{template_name}",
        keys.CREATED_BY_FLOW: f"{namespace}.{job_flow.metadata.name}",
    }
    # A longer value is not a valid label; the annotation has the full value.
    labels = {key: value for key, value in marks.items() if len(value) <= LONGEST_LABEL}
    spec = spec_of(template, member.entry)
    yield child_jobs.create(cache, kinds.JOB_FLOWS, job_flow, member.name, spec, labels, marks)


def _made(job_flow: JobFlow, members: list[Member], now: datetime) -> Iterator[commands.Command]:
    """Events for jobs that are observed for the first time. A rejected job gets no Event."""
    for member in members:
        if member.job is not None and member.recorded is None:
            yield _about(job_flow, "Normal", "Created", f"created job {member.name}", now)


def _is_to_be_cleared(job_flow: JobFlow) -> bool:
    """Whether the jobs must be deleted. It depends on the recorded phase, so the status is written
    before any deletion."""
    return job_flow.spec.job_retain_policy == "delete" and job_flow.status.state.phase == "Succeed"


# The status


def _status(job_flow: JobFlow, members: list[Member], phase: str) -> flow.JobFlowStatus:
    lists: dict[str, list[str]] = {name: [] for name in LISTS.values() if name}
    unknown: list[str] = []
    for member in members:
        if member.phase is None:
            continue
        wanted = LISTS.get(member.phase)
        if wanted is None:
            unknown.append(member.name)
        elif wanted:
            lists[wanted].append(member.name)
    conditions = {
        member.name: _condition(member.job) for member in members if member.job is not None
    }
    gone = {
        member.name: job_flow.status.conditions[member.name]
        for member in members
        if member.name in job_flow.status.conditions
    }
    stories = (_story(it) for it in members)
    return flow.JobFlowStatus(
        **{name: tuple(names) for name, names in lists.items()},
        un_know_jobs=tuple(unknown),
        job_status_list=tuple(it for it in stories if it is not None),
        conditions=dict(sorted((gone | conditions).items())),
        state=flow.FlowState(phase=phase),
    )


def _condition(job: batch.Job) -> flow.FlowCondition:
    return flow.FlowCondition(
        phase=job.status.state.phase,
        create_time=job.metadata.creation_timestamp,
        running_duration=job.status.running_duration,
        task_status_count=job.status.task_status_count,
    )


def _story(member: Member) -> flow.FlowJobStatus | None:
    """The recorded history of a job: its phases with their times. It is kept after the job is
    deleted.
    """
    job, before = member.job, member.recorded
    if job is None:
        return before
    state = job.status.state
    histories = () if before is None else before.running_histories
    if state.phase:
        histories = with_phase(histories, state.phase, state.last_transition_time)
    return flow.FlowJobStatus(
        name=member.name,
        state=state.phase,
        start_timestamp=job.metadata.creation_timestamp,
        end_timestamp=child_jobs.ended_at(job),
        restart_count=job.status.retry_count,
        running_histories=histories,
    )


def with_phase(
    histories: tuple[flow.RunningHistory, ...], phase: str, entered: datetime | None
) -> tuple[flow.RunningHistory, ...]:
    """The phases of a job with the present one, at most ``MOST_PHASES``, the newest last."""
    if histories and histories[-1].state == phase:
        return histories
    if histories:
        ended = msgspec.structs.replace(histories[-1], end_timestamp=entered)
        histories = (*histories[:-1], ended)
    return (*histories, flow.RunningHistory(state=phase, start_timestamp=entered))[-MOST_PHASES:]


def _about(
    job_flow: JobFlow, type_: commands.EventType, reason: str, message: str, at: datetime
) -> commands.RecordEvent:
    return commands.event_about(kinds.JOB_FLOWS, job_flow, type_, reason, message, at)
