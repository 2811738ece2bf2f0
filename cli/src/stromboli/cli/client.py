"""The REST API as functions: one request each, never repeated.

Objects come back as Kubernetes' own JSON, undecoded: commands read what they need with
``kinds``, and ``--output json`` shows them as they are. Every trouble is a CommandError.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from stromboli.cli.errors import CommandError, NotFoundError, UnreachableError
from stromboli.cli.explain import Explanation
from stromboli.cli.server import Address
from stromboli.shared.api import meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.messages.admission import Violation

T = TypeVar("T")
O = TypeVar("O", bound=meta.Object)  # noqa: E741 - an object of a kind
Document = dict[str, Any]
ANSWER_WITHIN_S = 30.0
"""A submission may be a thousand objects, each a write to etcd."""
READY_WITHIN_S = 2.0
"""Whether it is ready is asked by people who look at the screen."""


class Applied(msgspec.Struct, frozen=True):
    """What became of a submitted object: ``created``, ``configured`` or ``unchanged``."""

    kind: str
    namespace: str
    name: str
    result: str
    object: msgspec.Raw


class Items(msgspec.Struct, frozen=True):
    """A collection."""

    items: tuple[msgspec.Raw, ...]


class SchedulingInput(msgspec.Struct, frozen=True):
    """Manifests with what scheduling looks at; ``unread``: what the server could not read."""

    items: tuple[msgspec.Raw, ...]
    unread: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """RFC 9457, as far as we show it."""

    title: str = ""
    detail: str = ""
    violations: tuple[Violation, ...] = ()


class RefusedError(CommandError):
    """The server found the objects wrong; nothing of them was written."""

    def __init__(self, what: str, violations: tuple[Violation, ...]) -> None:
        count = len(violations)
        why = f"refused, {count} thing{'s' * (count > 1)} to correct"
        details = tuple(violation.message for violation in violations)
        super().__init__(what, why, "correct it and try again; nothing was written", details)
        self.violations = violations


class Client:
    """A connection to one server. Use as a context manager."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._http = httpx.Client(
            base_url=address.url,
            timeout=ANSWER_WITHIN_S,
            trust_env=not address.is_loopback,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def apply(self, documents: Sequence[Document]) -> list[Applied]:
        """Create or change objects, all or none. Raises RefusedError."""
        answer = self._ask("POST", "/v1/apply", "manifests", {"objects": documents})
        return self._read(answer, list[Applied])

    def create_job(self, namespace: str, document: Document) -> bytes:
        """A new job as stored. Raises RefusedError."""
        what = f"job {namespace}/{document['metadata']['name']}"
        return self._ask("POST", f"/v1/namespaces/{_part(namespace)}/jobs", what, document)

    def jobs(self, namespace: str | None) -> tuple[msgspec.Raw, ...]:
        """The jobs of a namespace, or all."""
        path = f"/v1/namespaces/{_part(namespace)}/jobs" if namespace else "/v1/jobs"
        return self._list(path, "jobs")

    def job(self, namespace: str, name: str) -> bytes:
        """One job. Raises NotFoundError."""
        return self._ask("GET", _job_path(namespace, name), f"job {namespace}/{name}")

    def pods(self, namespace: str, name: str) -> tuple[msgspec.Raw, ...]:
        """A job's pods. Raises NotFoundError."""
        return self._list(_job_path(namespace, name) + "/pods", f"job {namespace}/{name}")

    def explanation(self, namespace: str, name: str) -> Explanation:
        """Why a job waits. Raises NotFoundError."""
        path = _job_path(namespace, name) + "/explanation"
        return self._read(self._ask("GET", path, f"job {namespace}/{name}"), Explanation)

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a job and all that is its own. Raises NotFoundError."""
        self._ask("DELETE", _job_path(namespace, name), f"job {namespace}/{name}")

    def command_job(self, namespace: str, name: str, action: str) -> None:
        """Ask for an action on a job. Raises NotFoundError, RefusedError."""
        path = _job_path(namespace, name) + "/commands"
        self._ask("POST", path, f"job {namespace}/{name}", {"action": action})

    def all_pods(self, namespace: str | None) -> tuple[msgspec.Raw, ...]:
        """The pods of a namespace, or all."""
        path = "/v1/pods" + (f"?namespace={_part(namespace)}" if namespace else "")
        return self._list(path, "pods")

    def events(self, namespace: str, name: str) -> tuple[msgspec.Raw, ...]:
        """Kubernetes' Events about a job, its PodGroup and its pods. Raises NotFoundError."""
        return self._list(_job_path(namespace, name) + "/events", f"job {namespace}/{name}")

    def create_queue(self, document: Document) -> bytes:
        """A new queue as stored. Raises RefusedError."""
        return self._ask("POST", "/v1/queues", f"queue {document['metadata']['name']}", document)

    def queues(self) -> tuple[msgspec.Raw, ...]:
        """All queues."""
        return self._list("/v1/queues", "queues")

    def queue(self, name: str) -> bytes:
        """One queue. Raises NotFoundError."""
        return self._ask("GET", f"/v1/queues/{_part(name)}", f"queue {name}")

    def delete_queue(self, name: str) -> None:
        """Delete a queue. Raises NotFoundError; CommandError while it is in use."""
        self._ask("DELETE", f"/v1/queues/{_part(name)}", f"queue {name}")

    def pod_groups(self) -> tuple[msgspec.Raw, ...]:
        """The PodGroups of all namespaces."""
        return self._list("/v1/podgroups", "pod groups")

    def scheduling_input(self) -> SchedulingInput:
        """What the scheduler sees of the cluster."""
        answer = self._ask("GET", "/v1/scheduling", "the cluster")
        return self._read(answer, SchedulingInput)

    def readiness(self) -> tuple[bool, dict[str, dict[str, str]]]:
        """Whether the server is ready, and service -> fact -> what it waits for or warns of."""
        response = self._send("GET", "/readyz", None, READY_WITHIN_S)
        return response.is_success, self._read(response.content, dict[str, dict[str, str]])

    def decode(self, kind: Kind[O], raw: bytes | msgspec.Raw) -> O:
        """Our reading of an object. Raises CommandError if the server sent something else."""
        try:
            return kind.decode(raw)
        except msgspec.DecodeError as error:
            raise self._unreadable(f"no {kind.kind}: {error}") from None

    def _list(self, path: str, what: str) -> tuple[msgspec.Raw, ...]:
        return self._read(self._ask("GET", path, what), Items).items

    def _read(self, body: bytes, wanted: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=wanted)
        except msgspec.DecodeError as error:
            raise self._unreadable(str(error)) from None

    def _ask(self, method: str, path: str, what: str, document: Any = None) -> bytes:
        body = None if document is None else msgspec.json.encode(document)
        response = self._send(method, path, body, ANSWER_WITHIN_S)
        kind = response.headers.get("content-type", "").partition(";")[0]
        if response.is_success and (kind == "application/json" or not response.content):
            return response.content
        is_collection = " " not in what
        if kind != "application/problem+json" or (response.status_code == 404 and is_collection):
            raise self._unreadable(
                f"{method} {path} gave {response.status_code} {kind or 'nothing'}"
            )
        raise _error(
            what, method, path, response.status_code, self._read(response.content, Problem)
        )

    def _send(self, method: str, path: str, body: bytes | None, within_s: float) -> httpx.Response:
        try:
            return self._http.request(
                method,
                path,
                content=body,
                headers={"content-type": "application/json"} if body else {},
                timeout=within_s,
            )
        except httpx.TimeoutException:
            raise self._unreachable(f"no answer within {within_s:g} s") from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            why = str(error).partition("] ")[2] or str(error) or type(error).__name__
            raise self._unreachable(why) from None  # without the "[Errno 111] " before it

    def _unreachable(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"server {self.address.url} ({self.address.origin})",
            why,
            "start one with: strom up",
        )

    def _unreadable(self, why: str) -> CommandError:
        return CommandError(
            f"server {self.address.url} ({self.address.origin})",
            f"it does not answer as Stromboli does: {why}",
            "name the right one with --server or STROM_SERVER",
        )


def _error(what: str, method: str, path: str, status: int, problem: Problem) -> CommandError:
    if status == 404 and (method != "POST" or path.endswith("/commands")):
        plural, _, name = what.partition(" ")
        namespace = name.rpartition("/")[0]
        there = f"strom {plural} list" + (f" -n {namespace}" if namespace else "")
        return NotFoundError(what, "there is none of this name", f"see what there is: {there}")
    if problem.violations:
        return RefusedError(what, problem.violations)
    why = problem.detail or problem.title or f"status {status}"
    if why.lower().startswith(f"{what}: "):
        why = why[len(what) + 2 :]
    return CommandError(
        what, why, _NEXT.get(status, "see whether the server is well: strom version")
    )


_NEXT = {
    400: "correct it and try again; nothing was written",
    404: "create its namespace first: strom apply -f a manifest of kind Namespace",
    409: "delete it first, or change it with: strom apply -f FILE",
    413: "send it in several parts; nothing was written",
    422: "correct it and try again; nothing was changed",
    503: "try again in a moment; strom version says what the server waits for",
}
"""What helps, by status."""


def _job_path(namespace: str, name: str) -> str:
    return f"/v1/namespaces/{_part(namespace)}/jobs/{_part(name)}"


def _part(name: str) -> str:
    """A name inside a path. An empty one would be the path of something else."""
    if not name:
        raise CommandError("name", "it is empty", "name one")
    return quote(name, safe="")
