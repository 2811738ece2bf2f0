"""One job: why it is pending, its attempts, events, logs and YAML, and actions."""

import contextlib
from typing import Any

import msgspec
import yaml
from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.cli.render import pod_status
from stromboli.client import calls, errors, log_calls, phases
from stromboli.client.responses import KubernetesEvent
from stromboli.console.core import job_details
from stromboli.console.pages.requests import (
    Console,
    Page,
    Web,
    allowed,
    form_of,
    gather,
    query_of,
    redirect,
)
from stromboli.console.sessions import Session
from stromboli.shared import decoding
from stromboli.shared.api import kinds

LOG_LINES = 1000
"""Lines of a log that a page shows: the last ones."""
MOST_LOG_BYTES = 512 * 1024
COMMANDS = {"suspend": "AbortJob", "resume": "ResumeJob", "restart": "RestartJob"}
"""Action -> user command."""


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The pages of one job."""

    @get("/jobs/{namespace:str}/{name:str}")
    async def job(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session = console.session(request)
        client, now = session.client, console.clock()
        raw, history, explanation, events = await gather(
            client.send(calls.job(namespace, name)),
            allowed(client.tasks(name, namespace)),
            allowed(client.explanation(name, namespace)),
            allowed(client.send(calls.job_events(namespace, name))),
        )
        found = kinds.JOBS.decode(raw)
        rows: list[job_details.AttemptRow] = []
        more = 0
        if not isinstance(history, errors.ForbiddenError) and history.uid == found.metadata.uid:
            rows, more = job_details.attempts(history, now)
        phase, done = phases.phase_of(found), query_of(request).get("done", "")
        return console.page(
            session,
            "job.html",
            section="jobs",
            live=f"/live/job/{calls.path_segment(namespace)}/{calls.path_segment(name)}",
            job=found,
            phase=phase,
            facts=job_details.facts(found, now),
            tasks=job_details.tasks(found),
            pending=None
            if isinstance(explanation, errors.ForbiddenError)
            else job_details.pending(explanation, now),
            attempts=rows,
            more_attempts=more,
            events=_events(events),
            phases=job_details.phase_changes(found),
            actions=() if console.settings.read_only else job_details.actions(phase),
            done=done if done in job_details.ACTIONS else "",
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

    @get("/jobs/{namespace:str}/{name:str}/logs")
    async def logs(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, query = console.session(request), query_of(request)
        page = await session.client.send(calls.job_pods(namespace, name))
        pods = sorted(map(pod_status.decode, page.items), key=lambda it: it.metadata.name)
        names = [it.metadata.name for it in pods]
        chosen = query.get("pod") or (names[0] if names else "")
        containers = [
            container.name
            for it in pods
            if it.metadata.name == chosen
            for container in it.spec.containers
        ]
        container = query.get("container") or (containers[0] if containers else "")
        previous = query.get("previous") == "true"
        text, problem = "", ""
        if chosen:
            text, problem = await _log(session, namespace, chosen, container, previous=previous)
        return console.page(
            session,
            "logs.html",
            section="jobs",
            namespace=namespace,
            name=name,
            pods=names,
            pod=chosen,
            containers=containers,
            container=container,
            previous=previous,
            text=text,
            problem=problem,
            lines=LOG_LINES,
        )

    @get("/jobs/{namespace:str}/{name:str}/confirm/{action:str}")
    async def confirm(
        request: Web, namespace: FromPath[str], name: FromPath[str], action: FromPath[str]
    ) -> Page:
        session = console.session(request)
        _check(console, action)
        found = kinds.JOBS.decode(await session.client.send(calls.job(namespace, name)))
        return console.page(
            session,
            "confirm.html",
            section="jobs",
            namespace=namespace,
            name=name,
            action=action,
            uid=found.metadata.uid,
            running=found.status.running,
        )

    @post("/jobs/{namespace:str}/{name:str}/{action:str}", status_code=200)
    async def act(
        request: Web, namespace: FromPath[str], name: FromPath[str], action: FromPath[str]
    ) -> Page:
        session, form = console.session(request), await form_of(request)
        _check(console, action)
        if not session.accepts(form.get("csrf", "")):
            raise HTTPException(
                "the form is not of this session; open the page again", status_code=403
            )
        client = session.client
        found = kinds.JOBS.decode(await client.send(calls.job(namespace, name)))
        if found.metadata.uid != form.get("uid", ""):
            what = f"job {namespace}/{name}"
            raise errors.ConflictError(what, "it is another job by now: look at it first", 409)
        if action == "delete":
            await client.delete(name, namespace)
            return redirect("/jobs", namespace=namespace)
        await client.command(name, COMMANDS[action], namespace)
        own = f"/jobs/{calls.path_segment(namespace)}/{calls.path_segment(name)}"
        return redirect(own, done=action)

    return [job, manifest, logs, confirm, act]


def _check(console: Console, action: str) -> None:
    """Raises HTTPException for an action that does not exist here."""
    if action not in job_details.ACTIONS:
        raise HTTPException(f"there is no action {action[:50]!r}", status_code=404)
    if console.settings.read_only:
        raise HTTPException("this console is read-only", status_code=403)


def _events(page: Any) -> list[job_details.EventRow]:
    """The events that can be read; none without the right to them."""
    found = []
    if not isinstance(page, errors.ForbiddenError):
        for item in page.items:
            with contextlib.suppress(msgspec.DecodeError):
                found.append(decoding.from_json(item, KubernetesEvent))
    return job_details.events(found)


async def _log(
    session: Session, namespace: str, pod: str, container: str, *, previous: bool
) -> tuple[str, str]:
    """The last lines of a log, and why there is none."""
    call = log_calls.log(namespace, pod, container, previous=previous, tail_lines=LOG_LINES)
    found = bytearray()
    try:
        async with session.client.stream(call) as chunks:
            async for chunk in chunks:
                found += chunk
                if len(found) > 2 * MOST_LOG_BYTES:
                    del found[:-MOST_LOG_BYTES]
    except (errors.ResponseError, errors.UnreadableError) as error:
        return "", error.reason
    return bytes(found[-MOST_LOG_BYTES:]).decode(errors="replace"), ""
