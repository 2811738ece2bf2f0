"""Actions on a job: confirmations, changed fields, new jobs of the same spec, debug tools."""

import secrets
import string
from collections.abc import Callable
from typing import Any

from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.cli.job_specs import job_fields, job_spec
from stromboli.client import errors, phases
from stromboli.client.operations import calls, job_calls
from stromboli.console.core import job_details, job_forms
from stromboli.console.pages.requests import Console, Page, Web, form_of, redirect
from stromboli.console.sessions import Session
from stromboli.shared import decoding
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import debug_tools

JOB = "/jobs/{namespace:str}/{name:str}"
COMMANDS = {"suspend": "AbortJob", "resume": "ResumeJob", "restart": "RestartJob"}
"""Action -> user command."""
SUFFIX_CHARACTERS = string.ascii_lowercase + string.digits
SUFFIX_LENGTH = 5
Form = dict[str, str]


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The confirmations and forms of a job, and the requests that they send."""

    async def read(session: Session, namespace: str, name: str) -> batch.Job:
        return kinds.JOBS.decode(await session.client.send(calls.job(namespace, name)))

    async def posted(
        request: Web, namespace: str, name: str
    ) -> tuple[Session, Form, batch.Job, dict[str, Any]]:
        """The session, the form, the job and its document of a request that changes the job.
        Raises HTTPException and ConflictError."""
        session, form = console.session(request), await form_of(request)
        if console.settings.read_only:
            raise HTTPException("this console is read-only", status_code=403)
        if not session.accepts(form.get("csrf", "")):
            raise HTTPException(
                "the form belongs to another session; open the page again", status_code=403
            )
        raw = await session.client.send(calls.job(namespace, name))
        current_job = kinds.JOBS.decode(raw)
        if current_job.metadata.uid != form.get("uid", ""):
            what = f"job {namespace}/{name}"
            raise errors.ConflictError(
                what, "it was replaced by a new job; open its page first", 409
            )
        return session, form, current_job, decoding.from_json(raw, dict[str, Any])

    def render_form(session: Session, job: batch.Job, which: str, **values: Any) -> Page:
        """Renders a form of a job. ``which``: its action."""
        if console.settings.read_only:
            raise HTTPException("this console is read-only", status_code=403)
        base = {"fields": [], "problem": "", "tools": job_forms.tools(job), "failed": ""}
        return console.page(
            session,
            "job_form.html",
            422 if values.get("problem") else 200,
            section="jobs",
            which=which,
            job=job,
            known_tools=list(debug_tools.TOOLS),
            **{**base, **values},
        )

    @get(JOB + "/confirm/{action:str}")
    async def confirm(
        request: Web, namespace: FromPath[str], name: FromPath[str], action: FromPath[str]
    ) -> Page:
        session = console.session(request)
        _check(console, action)
        current_job = await read(session, namespace, name)
        return console.page(
            session,
            "confirm.html",
            section="jobs",
            namespace=namespace,
            name=name,
            action=action,
            consequence=job_details.consequence(action, phases.phase_of(current_job)),
            uid=current_job.metadata.uid,
            running=current_job.status.running,
        )

    @post(JOB + "/{action:str}", status_code=200)
    async def act(
        request: Web, namespace: FromPath[str], name: FromPath[str], action: FromPath[str]
    ) -> Page:
        _check(console, action)
        session, _, _, _ = await posted(request, namespace, name)
        if action == "delete":
            await session.client.delete(name, namespace)
            return redirect("/jobs", namespace=namespace)
        await session.client.command(name, COMMANDS[action], namespace)
        return _done(namespace, name, action)

    def form_page(
        which: str, values: Callable[[batch.Job], dict[str, Any]]
    ) -> ControllerRouterHandler:
        """The route of a form. ``which``: its action; ``values``: makes the template's values."""

        @get(f"{JOB}/{which}")
        async def form(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
            session = console.session(request)
            current_job = await read(session, namespace, name)
            return render_form(session, current_job, which, **values(current_job))

        return form

    def refused(
        session: Session,
        current_job: batch.Job,
        which: str,
        fields: Any,
        form: Form,
        error: Exception,
    ) -> Page:
        """Renders the form again, with its values and the reason why it was refused."""
        form_fields = job_forms.given(fields, form)
        return render_form(session, current_job, which, fields=form_fields, problem=_reason(error))

    forms = [
        form_page("change", lambda job: {"fields": job_forms.change_fields(job)}),
        form_page(
            "resubmit",
            lambda job: {"fields": job_forms.resubmit_fields(job, _free_name(job.metadata.name))},
        ),
        form_page("retry", lambda job: {"failed": job_forms.failed_indexes(job)}),
        form_page("tools", lambda _: {}),
    ]

    @post(JOB + "/change", status_code=200)
    async def change(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, form, current_job, _ = await posted(request, namespace, name)
        fields = job_forms.change_fields(current_job)
        try:
            wanted = job_forms.changed(fields, form)
            if not job_forms.is_unchanged(wanted):
                call = job_calls.change(
                    namespace,
                    name,
                    wanted.replicas,
                    wanted.minimum,
                    wanted.priority,
                    wanted.time_s,
                    wanted.queue,
                )
                await session.client.send(call)
        except (job_fields.FieldError, errors.RejectedError) as error:
            return refused(session, current_job, "change", fields, form, error)
        return _done(namespace, name, "change")

    @post(JOB + "/resubmit", status_code=200)
    async def resubmit(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, form, current_job, stored = await posted(request, namespace, name)
        wanted = form.get("name", "").strip() or _free_name(name)
        fields = job_forms.resubmit_fields(current_job, wanted)
        try:
            document = job_forms.new_job(stored, wanted, job_forms.changed(fields, form))
            created_job = await session.client.submit(document, namespace)
        except (job_fields.FieldError, errors.RejectedError, errors.ConflictError) as error:
            return refused(session, current_job, "resubmit", fields, form, error)
        return _done(namespace, created_job.metadata.name, "resubmit")

    @post(JOB + "/retry", status_code=200)
    async def retry(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, _, current_job, stored = await posted(request, namespace, name)
        failed = job_forms.failed_indexes(current_job)
        if not failed:
            raise HTTPException("no index of this job has failed", status_code=409)
        document = job_forms.new_job(stored, _free_name(name), job_fields.Fields())
        created_job = await session.client.submit(
            job_forms.failed_again(document, failed), namespace
        )
        return _done(namespace, created_job.metadata.name, "retry")

    @post(JOB + "/tools", status_code=200)
    async def tools(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, form, current_job, _ = await posted(request, namespace, name)
        start, stop = form.get("start", ""), form.get("stop", "")
        document = job_forms.with_tools(current_job, start=start, stop=stop)
        try:
            await session.client.apply([document], namespace)
        except errors.RejectedError as error:
            return render_form(session, current_job, "tools", problem=_reason(error))
        return _done(namespace, name, "tools")

    return [confirm, act, *forms, change, resubmit, retry, tools]


def _check(console: Console, action: str) -> None:
    """Raises HTTPException for an unknown action, and for any action of a read-only console."""
    if action not in job_details.ACTIONS:
        raise HTTPException(f"there is no action {action[:50]!r}", status_code=404)
    if console.settings.read_only:
        raise HTTPException("this console is read-only", status_code=403)


def _done(namespace: str, name: str, what: str) -> Page:
    own = f"/jobs/{calls.path_segment(namespace)}/{calls.path_segment(name)}"
    return redirect(own, done=what)


def _reason(error: Exception) -> str:
    """Why a form was refused, with what admission expects."""
    if not isinstance(error, errors.ResponseError):
        return str(error)
    parts = ("; ".join(filter(None, (it.reason, it.expected))) for it in error.violations)
    return "; ".join(parts) or error.reason


def _free_name(name: str) -> str:
    """A generated name for a copy of a job."""
    suffix = "".join(secrets.choice(SUFFIX_CHARACTERS) for _ in range(SUFFIX_LENGTH))
    return job_spec.generated_name(name, suffix)
