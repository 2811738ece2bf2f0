"""``stromboli.client`` for commands: its errors become CommandErrors.

Objects are returned as Kubernetes' own JSON, not decoded: commands decode what they need with
``kinds``, and ``--output json`` shows objects unchanged. ``stromboli.client`` defines paths and
responses.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import msgspec

from stromboli.cli import usage_errors
from stromboli.cli.errors import (
    CommandError,
    ConflictedError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
    UnreachableError,
)
from stromboli.cli.parameters import time_options
from stromboli.cli.render import output
from stromboli.cli.server import Address
from stromboli.client import blocking
from stromboli.client import errors as client_errors
from stromboli.client.events import Change
from stromboli.client.operations import accounting_calls, calls, job_calls, workload_calls
from stromboli.client.phases import phase_of
from stromboli.client.responses import Applied, Explanation, SchedulingInput
from stromboli.client.sessions.opening import Place
from stromboli.shared.api import batch, kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.views import accounting
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.api.views.task_history import TaskHistory
from stromboli.shared.api.views.what_if import JobIf, WhatIf
from stromboli.shared.formats import counts
from stromboli.shared.messages.admission import Violation
from stromboli.shared.messages.node_topology import TopologyObserved

T = TypeVar("T")
O = TypeVar("O", bound=meta.Object)  # noqa: E741 - an object of a kind
Document = dict[str, Any]
RIGHTS_SHOWN = 3
"""Maximum missing permissions that are listed; reading the whole cluster requires twenty."""
NAMES_COMPARED = 500
"""Maximum number of existing names compared with a name that was not found: one page."""
_OBJECT_PATH = re.compile(
    r"(?P<all>/v1/(namespaces/(?P<namespace>[^/]+)/)?[a-z]+)/(?P<name>[^/]+)(/[a-z]+)?$"
)
EXPLAIN_AFTER_S = 5.0
"""Seconds after which a wait for a pending job shows the reason: jobs that fit have started."""
READY_WITHIN_S = 2.0
"""Time limit of a readiness check in seconds; a person waits for it."""


class RejectedError(CommandError):
    """The server rejected the objects; none of them was written."""

    def __init__(self, what: str, violations: tuple[Violation, ...]) -> None:
        count = len(violations)
        why = f"rejected with {counts.counted(count, 'error')}"
        details = tuple(violation.message for violation in violations)
        super().__init__(
            what, why, "correct the errors and try again; nothing was written", details
        )
        self.violations = violations


class ForbiddenError(CommandError):
    """Permissions are missing; nothing was done."""

    is_forbidden = True

    def __init__(self, what: str, violations: tuple[Violation, ...]) -> None:
        count = len(violations)
        why = f"forbidden: {counts.counted(count, 'permission')} missing"
        first_violations = violations[:RIGHTS_SHOWN]
        details = [
            line
            for each in first_violations
            for line in (each.reason, f"  needed: {each.expected}")
        ]
        if len(first_violations) < count:
            details.append(f"and {count - len(first_violations)} more")
        super().__init__(
            what, why, "ask a cluster administrator for a role; nothing was done", tuple(details)
        )
        self.violations = violations


def _show_warning(text: str) -> None:
    output.show_note(f"Warning: {text}")


def _with_warnings_shown(applied: list[Applied]) -> list[Applied]:
    """Prints each warning in the results to stderr; returns the results."""
    for one in applied:
        for warning in one.warnings:
            _show_warning(warning)
    return applied


class Client:
    """A connection to one server. Use as a context manager. Defaults of ``token_file`` and
    ``ca_file``: the environment.
    """

    def __init__(
        self, address: Address, token_file: str | None = None, ca_file: str | None = None
    ) -> None:
        self.address = address
        with self._translate_errors():
            self._client = blocking.Client(
                address, token_file=token_file, ca_file=ca_file, on_warning=_show_warning
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.__exit__(kind, error, trace)

    def apply(self, documents: Sequence[Document], what: str = "") -> list[Applied]:
        """Create or change objects, all or none. ``what`` names them in errors if the user does not
        know their names. Raises RejectedError.
        """
        call = calls.apply(documents)
        applied = self.send(msgspec.structs.replace(call, what=what) if what else call)
        return _with_warnings_shown(applied)

    def check(self, documents: Sequence[Document]) -> list[Applied]:
        """The objects as ``apply`` would store them. Raises RejectedError."""
        return self.send(calls.check(documents))

    def create_job(self, namespace: str, document: Document) -> bytes:
        """A new job as stored. Raises RejectedError."""
        return self.send(calls.create_job(namespace, document))

    def jobs(self, namespace: str | None) -> tuple[msgspec.Raw, ...]:
        """The jobs of a namespace, or all."""
        return self.send(calls.jobs(namespace or "")).items

    def job(self, namespace: str, name: str) -> bytes:
        """One job. Raises NotFoundError."""
        return self.send(calls.job(namespace, name))

    def pods(self, namespace: str, name: str) -> tuple[msgspec.Raw, ...]:
        """A job's pods. Raises NotFoundError."""
        return self.send(calls.job_pods(namespace, name)).items

    def explanation(self, namespace: str, name: str) -> Explanation:
        """Why a job is pending. Raises NotFoundError."""
        return self.send(calls.explanation(namespace, name))

    def what_if(self, namespace: str, name: str, change: JobIf) -> WhatIf:
        """When a pending job would start if it were different. Raises NotFoundError."""
        return self.send(job_calls.what_if(namespace, name, change))

    def expected_starts(self, namespace: str | None) -> dict[str, ExpectedStart]:
        """PodGroup -> when it is expected to start; ``namespace`` None for all namespaces."""
        starts = self.send(job_calls.expected_starts(namespace or ""))
        return {each.pod_group: each for each in starts.items}

    def wait(
        self,
        namespace: str,
        name: str,
        phases: frozenset[str],
        timeout_s: float | None,
        report: Callable[[batch.Job], object],
        explain: Callable[[], object] | None = None,
        explain_after_s: float = EXPLAIN_AFTER_S,
    ) -> batch.Job:
        """The job once it is in one of these phases or a final one. Waits for an unavailable
        server, with a note on stderr. Calls ``explain`` once if the job is Pending after
        ``explain_after_s`` seconds. Raises NotFoundError, TimedOutError, CommandError if the job is
        deleted.
        """
        what = f"job {namespace}/{name}"
        phase = ""

        def note(job: batch.Job) -> None:
            nonlocal phase
            phase = phase_of(job)
            report(job)

        def wait_for(left_s: float | None) -> batch.Job:
            with self._translate_errors(calls.job(namespace, name)):
                return self._client.wait(
                    name,
                    namespace,
                    phases=phases,
                    timeout_s=left_s,
                    on_change=note,
                    on_break=self._warn_disconnected,
                )

        try:
            if explain is None or (timeout_s is not None and timeout_s <= explain_after_s):
                return wait_for(timeout_s)
            with contextlib.suppress(client_errors.TimedOutError):
                return wait_for(explain_after_s)
            if phase == "Pending":
                explain()
            return wait_for(None if timeout_s is None else timeout_s - explain_after_s)
        except client_errors.GoneError:
            raise CommandError(what, "it was deleted during the wait", "submit it again") from None
        except client_errors.TimedOutError:
            more = "explain" if phase in ("", "Pending") else "job get"
            next_step = f"increase --timeout, or see: strom {more} {name} -n {namespace}"
            why = f"still {phase or 'Pending'} after {timeout_s:g} s"
            raise TimedOutError(what, why, next_step) from None

    def scale(
        self, namespace: str, name: str, replicas: int, task: str, minimum: int | None
    ) -> Applied:
        """Set the replicas of a task. Raises NotFoundError, RejectedError."""
        applied = self.send(calls.scale(namespace, name, replicas, task, minimum))
        return _with_warnings_shown([applied])[0]

    def tasks(self, namespace: str, name: str, uid: str = "") -> TaskHistory:
        """All attempts of a job's tasks, also of a deleted job. Raises NotFoundError."""
        return self.send(calls.tasks(namespace, name, uid))

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a job and the objects that it owns. Raises NotFoundError."""
        self.send(calls.delete_job(namespace, name))

    def command_job(self, namespace: str, name: str, action: str) -> None:
        """Request an action on a job. Raises NotFoundError, RejectedError."""
        self.send(calls.command(namespace, name, action))

    def all_pods(self, namespace: str | None) -> tuple[msgspec.Raw, ...]:
        """The pods of a namespace, or all."""
        return self.send(calls.pods(namespace or "")).items

    def events(self, namespace: str, name: str) -> tuple[msgspec.Raw, ...]:
        """Kubernetes' Events about a job, its PodGroup and its pods. Raises NotFoundError."""
        return self.send(calls.job_events(namespace, name)).items

    def workloads(self, kind: Kind[Any], namespace: str | None) -> tuple[msgspec.Raw, ...]:
        """The flows, templates or crons of a namespace, or all."""
        return self.send(workload_calls.workloads(kind, namespace or "")).items

    def tools(self, namespace: str, name: str) -> tuple[msgspec.Raw, ...]:
        """The pods of a job's debug tools. Raises NotFoundError."""
        return self.send(calls.job_tools(namespace, name)).items

    def create_queue(self, document: Document) -> bytes:
        """A new queue as stored. Raises RejectedError."""
        return self.send(calls.create_queue(document))

    def queues(self) -> tuple[msgspec.Raw, ...]:
        """All queues."""
        return self.send(calls.queues()).items

    def queue(self, name: str) -> bytes:
        """One queue. Raises NotFoundError."""
        return self.send(calls.queue(name))

    def delete_queue(self, name: str) -> None:
        """Delete a queue. Raises NotFoundError; CommandError while it is in use."""
        self.send(calls.delete_queue(name))

    def pod_groups(self, namespace: str | None = None) -> tuple[msgspec.Raw, ...]:
        """The PodGroups of a namespace, or all."""
        return self.send(calls.pod_groups(namespace or "")).items

    def nodes(self) -> tuple[msgspec.Raw, ...]:
        """All nodes."""
        return self.send(calls.nodes()).items

    def node_topology(self, name: str) -> TopologyObserved:
        """The hardware of a node, as its agent reports it."""
        return self.send(calls.node_topology(name))

    def scheduling_input(self) -> SchedulingInput:
        """The cluster as the scheduler reads it."""
        return self.send(calls.scheduling_input())

    def user_name(self) -> str:
        """The user of this client, as it is recorded on submitted objects."""
        return self.send(calls.me()).name

    def session_place(self) -> Place:
        """The server at which sessions in pods are opened."""
        with self._translate_errors():
            return self._client.session_place()

    def readiness(self) -> tuple[bool, dict[str, dict[str, str]]]:
        """Whether the server is ready, and service -> fact -> its problem or warning."""
        with self._translate_errors():
            return self._client.readiness(READY_WITHIN_S)

    def send(self, call: calls.Call[T]) -> T:
        """The response to any call. Raises CommandError."""
        with self._translate_errors(call):
            return self._client.send(call)

    def _not_found(self, call: calls.Call[Any], error: NotFoundError) -> NotFoundError:
        """The error about an absent object with similar names of its kind, if they can be read, and
        the command that shows the past of a deleted job."""
        match = _OBJECT_PATH.match(call.path)
        if match is None:
            return error
        listed = calls.list_page(match["all"], error.what, NAMES_COMPARED, "")
        name, hint, deleted, next_step = unquote(match["name"]), "", "", error.next_step
        with contextlib.suppress(client_errors.ClientError, msgspec.DecodeError):
            names = [kinds.metadata_of(raw).name for raw in self._client.send(listed).items]
            hint = usage_errors.did_you_mean(name, (it for it in names if it != name))
        if match["all"].endswith("/jobs") and (namespace := unquote(match["namespace"] or "")):
            deleted, past = self._past_of(namespace, name)
            next_step = f"see its attempts: {past} {name} -n {namespace}" if past else next_step
        return NotFoundError(error.what, f"{error.why}{deleted}{hint}", next_step)

    def _past_of(self, namespace: str, name: str) -> tuple[str, str]:
        """When a job was deleted, and the command that shows its attempts; empty if there is no
        record of it, or it cannot be read."""
        with contextlib.suppress(client_errors.ClientError):
            at = self._client.send(calls.tasks(namespace, name, "")).deleted_at
            deleted = f"; it was deleted at {time_options.short(at)} UTC" if at else ""
            return deleted, "strom job history"
        query = accounting.AttemptQuery(namespace=namespace, job=name, limit=1)
        with contextlib.suppress(client_errors.ClientError):
            if self._client.send(accounting_calls.attempts(query)).attempts:
                return "; it was deleted", "strom history"
        return "", ""

    @contextlib.contextmanager
    def stream(self, call: calls.Call[Any]) -> Iterator[Iterator[bytes]]:
        """The response to a call, in chunks. Entering raises CommandError."""
        with contextlib.ExitStack() as stack:
            with self._translate_errors():
                chunks = stack.enter_context(self._client.stream(call))
            yield chunks

    def watch(self, call: calls.Call[Any]) -> Iterator[Change[bytes]]:
        """The changes of a ``calls.watch_...``, as Kubernetes' JSON, indefinitely. Waits for an
        unavailable server, with a note on stderr. Raises CommandError.
        """
        raw: calls.Call[bytes] = msgspec.structs.replace(call, read=bytes)
        with self._translate_errors():
            yield from self._client.watch(raw, on_break=self._warn_disconnected)

    def decode(self, kind: Kind[O], raw: bytes | msgspec.Raw) -> O:
        """Decode an object. Raises CommandError if the server sent something else."""
        try:
            return kind.decode(raw)
        except msgspec.DecodeError as error:
            raise self._unreadable(f"it is not a {kind.kind}: {error}") from None

    @contextlib.contextmanager
    def _translate_errors(self, call: calls.Call[Any] | None = None) -> Iterator[None]:
        """Context manager that translates errors of the client library to CommandErrors. ``call``:
        the request for an object that may be absent."""
        try:
            yield
        except client_errors.EmptyNameError:
            raise CommandError("name", "it is empty", "pass a name") from None
        except client_errors.UnsafeTokenError as error:
            where = "set an https URL with --server"
            raise CommandError(self._server, error.reason, where) from None
        except client_errors.UnreadableFileError as error:
            raise CommandError(error.what, error.reason, "set another file") from None
        except client_errors.UnreachableError as error:
            raise UnreachableError(self._server, error.reason, error.next_step) from None
        except client_errors.UnreadableError as error:
            raise self._unreadable(error.reason) from None
        except client_errors.ResponseError as error:
            translated = _command_error(error)
            if call is not None and isinstance(translated, NotFoundError):
                translated = self._not_found(call, translated)
            raise translated from None

    def _warn_disconnected(self, error: client_errors.ClientError) -> None:
        output.show_note(f"strom: {self._server}: {error.reason}; reconnecting")

    @property
    def _server(self) -> str:
        return self.address.what

    def _unreadable(self, why: str) -> CommandError:
        return CommandError(
            self._server,
            f"the response is not from a Stromboli server: {why}",
            "set the right URL with --server or STROM_SERVER",
        )


def _command_error(error: client_errors.ResponseError) -> CommandError:
    what, why = error.what, error.reason
    if isinstance(error, client_errors.NotFoundError) and not error.is_creation:
        plural, _, name = what.partition(" ")
        namespace, slash, _ = name.partition("/")
        there = f"strom {plural} list" + (f" -n {namespace}" if slash else "")
        return NotFoundError(what, "not found", f"list what exists: {there}")
    if isinstance(error, client_errors.ForbiddenError) and error.violations:
        return ForbiddenError(what, error.violations)
    if error.violations:
        return RejectedError(what, error.violations)
    next_step = _NEXT.get(error.status, "check the server: strom version")
    if isinstance(error, client_errors.ConflictError) and error.is_creation:
        kind, _, key = what.partition(" ")
        namespace, slash, name = key.rpartition("/")
        there = f"{name} -n {namespace}" if slash else name
        why, next_step = "exists already", f"{EXISTS_NEXT}: strom {kind} delete {there}"
    return _KIND.get(type(error), CommandError)(what, why, next_step)


_KIND: dict[type[client_errors.ResponseError], type[CommandError]] = {
    client_errors.ConflictError: ConflictedError,
    client_errors.UnavailableError: UnavailableError,
}


EXISTS_NEXT = "choose another name; update it with strom apply -f FILE; or delete it"
_NEXT = {
    400: "correct the errors and try again; nothing was written",
    401: "with strom up: run strom as the user who started it, without STROM_TOKEN and "
    "STROM_TOKEN_FILE; on a cluster: export STROM_TOKEN=$(kubectl create token SERVICEACCOUNT "
    "-n NAMESPACE --audience stromboli)",
    403: "ask a cluster administrator for a role",
    404: "correct --namespace, or create it first: strom apply -f FILE with a Namespace",
    409: "delete it first, or update it with: strom apply -f FILE",
    413: "split the manifests; nothing was written",
    422: "correct the errors and try again; nothing was changed",
    429: "try again later",
    503: "try again; strom version shows what the server waits for",
}
"""HTTP status -> the next step."""
