"""One job: why it is pending, its attempts, evictions, events and YAML."""

import contextlib
from datetime import datetime
from typing import Any

import msgspec
import yaml
from litestar import get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.client import errors, phases
from stromboli.client.operations import accounting_calls, calls
from stromboli.console.core import evictions, job_details, job_forms
from stromboli.console.pages.requests import (
    Console,
    Page,
    Web,
    allowed,
    events_of,
    gather,
    query_of,
)
from stromboli.console.sessions import Session
from stromboli.shared import decoding
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.views import accounting, efficiency

UNAVAILABLE = (errors.ForbiddenError, errors.UnavailableError, errors.UnreachableError)
"""Errors of requests to the history: the page is shown without its data."""
MOST_REQUESTS = 20
"""Maximum requests of users that the page shows, the newest."""
DONE = (*job_details.ACTIONS, "change", "resubmit", "retry", "tools")
"""Actions and forms that the page of a job can report as requested."""


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The pages of one job."""

    @get("/jobs/{namespace:str}/{name:str}")
    async def job(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session = console.session(request)
        client, now = session.client, console.clock()
        raw, history, explanation, events, pods = await gather(
            client.send(calls.job(namespace, name)),
            allowed(client.tasks(name, namespace)),
            allowed(client.explanation(name, namespace)),
            allowed(client.send(calls.job_events(namespace, name))),
            allowed(client.send(calls.job_pods(namespace, name))),
        )
        current_job = kinds.JOBS.decode(raw)
        timeline = job_details.Timeline()
        kept = await _kept(session, current_job)
        if (
            not isinstance(history, errors.ForbiddenError)
            and history.uid == current_job.metadata.uid
        ):
            timeline = job_details.timeline(history, now, _numa(pods), kept)
        lost, won = await _evictions(session, current_job)
        requests = await _requests(session, current_job)
        phase, done = phases.phase_of(current_job), query_of(request).get("done", "")
        return console.page(
            session,
            "job.html",
            section="jobs",
            live=f"/live/job/{calls.path_segment(namespace)}/{calls.path_segment(name)}",
            job=current_job,
            phase=phase,
            facts=job_details.facts(current_job, now),
            used=efficiency.texts(efficiency.of_attempts(list(kept.values()))),
            tasks=job_details.tasks(current_job),
            pending=None
            if isinstance(explanation, errors.ForbiddenError)
            else job_details.pending(explanation, now),
            timeline=timeline,
            lost=lost,
            won=won,
            tools=job_forms.tools(current_job),
            events=events_of(events),
            phases=job_details.phase_changes(current_job),
            requests=requests,
            actions=() if console.settings.read_only else job_details.actions(phase),
            forms=() if console.settings.read_only else job_details.forms(current_job),
            done=done if done in DONE else "",
        )

    @get("/jobs/{namespace:str}/{name:str}/yaml")
    async def manifest(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session = console.session(request)
        raw = await session.client.send(calls.job(namespace, name))
        document = {
            "apiVersion": kinds.JOBS.api_version,
            "kind": kinds.JOBS.kind,
            **decoding.from_json(raw, dict[str, Any]),
        }
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        return console.page(
            session, "yaml.html", section="jobs", namespace=namespace, name=name, text=text
        )

    return [job, manifest]


def _numa(pods: Any) -> dict[str, str]:
    """The uid of a pod -> what it holds of each NUMA node; empty without the right to pods."""
    numa_by_uid = {}
    if not isinstance(pods, errors.ForbiddenError):
        for item in pods.items:
            with contextlib.suppress(msgspec.DecodeError):
                pod = kinds.PODS.decode(item)
                numa_by_uid[pod.metadata.uid] = job_details.numa_of(pod)
    return numa_by_uid


async def _evictions(
    session: Session, job: batch.Job
) -> tuple[list[evictions.EvictionRow], list[evictions.EvictionRow]]:
    """The evictions of a job's pods, and the evictions of other jobs' pods for the job. Both are
    empty if the viewer lacks the right or the history does not answer: the page is useful without
    them.

    A viewer who may read the evictions of all namespaces also sees the other jobs' names."""
    uid = job.metadata.uid
    for namespace in ("", job.metadata.namespace):
        query = accounting.EvictionQuery(namespace=namespace, uid=uid, limit=evictions.MOST_OF_JOB)
        with contextlib.suppress(errors.ForbiddenError):
            try:
                eviction_page = await session.client.send(accounting_calls.evictions(query))
            except (errors.UnavailableError, errors.UnreachableError):
                return [], []
            return evictions.of_job(eviction_page.evictions, uid, namespace)
    return [], []


async def _kept(session: Session, job: batch.Job) -> dict[str, accounting.Attempt]:
    """The uid of a pod -> its attempt in the history; empty in the same cases as ``_evictions``."""
    metadata = job.metadata
    query = accounting.AttemptQuery(
        namespace=metadata.namespace, uid=metadata.uid, limit=job_details.MOST_ATTEMPTS
    )
    with contextlib.suppress(*UNAVAILABLE):
        attempt_page = await session.client.send(accounting_calls.attempts(query))
        return {it.pod_uid: it for it in attempt_page.attempts}
    return {}


async def _requests(session: Session, job: batch.Job) -> list[tuple[str, datetime]]:
    """What users requested about the job, and when; empty in the same cases as ``_evictions``."""
    metadata = job.metadata
    query = accounting.JobQuery(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
    with contextlib.suppress(*UNAVAILABLE):
        job_page = await session.client.send(accounting_calls.jobs(query))
        return [
            (accounting.request_text(it), it.at)
            for it in (job_page.jobs[0].requests if job_page.jobs else ())[-MOST_REQUESTS:]
        ]
    return []
