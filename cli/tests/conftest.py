"""The real REST API on the embedded cluster, in a thread beside the tests, and ``strom`` as its
client.

Only admission runs: the tests write what controller and scheduler would write, so that they know
the expected output.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from typer.testing import CliRunner, Result

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.cli import main
from stromboli.embedded.cluster import EmbeddedCluster, Webhook
from stromboli.shared import envelope, errors, keys, topics
from stromboli.shared.api import batch, kinds, meta
from stromboli.shared.api.views import accounting
from stromboli.shared.cluster import port
from stromboli.shared.messages import base
from stromboli.shared.messages import batch as messages
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import builders
from stromboli.testkit.doubles import shared_rest

T = TypeVar("T")


class Node:
    """A node whose containers have written the given text; following ends at the end of
    the text.
    """

    def __init__(self) -> None:
        self.written: dict[tuple[str, str], bytes] = {}
        self.seconds: dict[tuple[str, str], Sequence[int]] = {}
        """Seconds after noon of each line; without them, 0."""

    @contextlib.asynccontextmanager
    async def logs(
        self, uid: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """As the port has it."""
        text = self._selected((uid, query.container), query)
        if query.tail_lines is not None:
            lines = text.splitlines(keepends=True)
            text = b"".join(lines[len(lines) - query.tail_lines :])

        async def chunks() -> AsyncGenerator[bytes, None]:
            for at in range(0, len(text), 7):  # no chunk is a line
                yield text[at : at + 7]

        yield chunks()

    def _selected(self, key: tuple[str, str], query: port.LogQuery) -> bytes:
        """The output from a time on, with times if they are requested."""
        lines = self.written.get(key, b"").splitlines(keepends=True)
        seconds = self.seconds.get(key) or [0] * len(lines)
        times = [builders.NOON + timedelta(seconds=second) for second in seconds]
        return b"".join(
            (at.isoformat().encode() + b" " if query.timestamps else b"") + line
            for at, line in zip(times, lines, strict=True)
            if query.since is None or at >= query.since
        )

    @contextlib.asynccontextmanager
    async def deleted_logs(
        self, namespace: str, name: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """As a node that keeps the output of deleted pods."""
        if (query.uid, query.container) not in self.written:
            raise errors.NotFoundError(f"log of {namespace}/{name}", "not kept")
        async with self.logs(query.uid, query) as chunks:
            yield chunks


NODE = "node"


class ApiServer:
    """A server, and what only its insides can do."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, url: str, cluster: Any, admission: AdmissionService
    ) -> None:
        self.url = url
        self.health = runtime.Health("admission")
        self.loop = loop
        self.node = Node()
        self._cluster = cluster
        self._admission = admission
        self._then: dict[str, Callable[[], Awaitable[object]]] = {}

    def once_answered(self, path: str, then: Callable[[], Awaitable[object]]) -> None:
        """Do something in the server's loop as soon as a request for this path was answered."""
        self._then[path] = then

    def watching(self, handler: ASGIApp) -> ASGIApp:
        """The application's handler, with an eye on what is answered."""

        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_and_tell(message: Message) -> None:
                await send(message)
                if message["type"] == "http.response.body":
                    then = self._then.pop(scope["path"], None)
                    if then is not None:
                        await then()

            await handler(scope, receive, send_and_tell)

        return handle

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=120)

    def job(self, name: str, namespace: str = "default") -> batch.Job:
        """The job as it is stored."""
        return kinds.JOBS.decode(self.do(self._cluster.get(kinds.JOBS, namespace, name)))

    def all(self, kind: kinds.Kind[Any]) -> list[bytes]:
        """All objects of a kind, by name."""
        found = self.do(self._cluster.list(kind)).items
        return sorted(found, key=lambda raw: kinds.metadata_of(raw).key)

    def set_status(self, name: str, phase: str, **status: Any) -> None:
        """What the controller would write."""
        self.do(self.write_status(name, phase, **status))

    async def write_status(self, name: str, phase: str, **status: Any) -> None:
        """The same, in the server's loop."""
        patch = {"status": {"state": {"phase": phase}, **status}}
        await self._cluster.patch(
            kinds.JOBS,
            "default",
            name,
            msgspec.json.encode(patch),
            patch_type="merge",
            subresource="status",
        )

    def start_pod(
        self,
        job: str,
        index: int,
        text: bytes,
        *,
        phase: str = "Running",
        seconds: Sequence[int] = (),
    ) -> None:
        """A pod of a job's task, on a node, that wrote this; ``seconds``: when each line."""
        name = f"{job}-w-{index}"
        labels = {keys.JOB_NAME: job, keys.TASK_INDEX: str(index)}
        pod = builders.make_pod(name, labels=labels, task="w", index=index)
        self.create(kinds.PODS, pod)
        metadata = kinds.metadata_of(self.do(self._cluster.get(kinds.PODS, "default", name)))
        self.do(self._cluster.bind("default", name, uid=metadata.uid, node=NODE, annotations={}))
        status = msgspec.json.encode({"status": {"phase": phase}})
        self.do(
            self._cluster.patch(
                kinds.PODS, "default", name, status, patch_type="merge", subresource="status"
            )
        )
        for container in pod.spec.containers:
            self.node.written[metadata.uid, container.name] = text
            self.node.seconds[metadata.uid, container.name] = seconds

    def start_tool(self, job: str, tool: str) -> None:
        """A tool's pod beside a job, as the controller would make it."""
        labels = {keys.TOOL: tool, keys.TOOL_OF: job}
        pod = builders.make_pod(f"{job}-tool-{tool}", labels=labels, node=NODE, phase="Running")
        self.create(kinds.PODS, pod)
        status = msgspec.json.encode({"status": {"phase": "Running"}})
        self.do(
            self._cluster.patch(
                kinds.PODS,
                "default",
                f"{job}-tool-{tool}",
                status,
                patch_type="merge",
                subresource="status",
            )
        )

    def label(self, name: str, **labels: str) -> None:
        """What a user would write on a job."""
        patch = msgspec.json.encode({"metadata": {"labels": labels}})
        self.do(self._cluster.patch(kinds.JOBS, "default", name, patch, patch_type="merge"))

    def annotate(self, name: str, **annotations: str) -> None:
        """What the controller would note on a job."""
        patch = msgspec.json.encode({"metadata": {"annotations": annotations}})
        self.do(self._cluster.patch(kinds.JOBS, "default", name, patch, patch_type="merge"))

    def set_pod_status(self, name: str, **status: Any) -> None:
        """What a node would write of a pod."""
        patch = msgspec.json.encode({"status": status})
        self.do(
            self._cluster.patch(
                kinds.PODS, "default", name, patch, patch_type="merge", subresource="status"
            )
        )

    async def delete_job(self, name: str) -> None:
        """Delete a job in the server's event loop."""
        await self._cluster.delete(kinds.JOBS, "default", name)

    def create(self, kind: kinds.Kind[Any], document: meta.Object | dict[str, Any]) -> None:
        """What another service would create."""
        builtin = msgspec.json.decode(msgspec.json.encode(document))
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **builtin}
        namespace = body["metadata"].get("namespace", "")
        for own in ("uid", "resourceVersion", "creationTimestamp"):
            body["metadata"].pop(own, None)
        self.do(self._cluster.create(kind, namespace, msgspec.json.encode(body)))

    def create_namespace(self, name: str) -> None:
        """A namespace."""
        self.create(kinds.NAMESPACES, {"metadata": {"name": name}})

    def tell(self, record: envelope.Record) -> None:
        """Publish a record of another service."""

        async def fold() -> None:
            self._admission.fold(record)

        self.do(fold())

    def keep_history(self, history: accounting.History) -> None:
        """Answer queries about what ran from this history."""
        self._admission.history = history

    def tell_tasks(self, job: str, uid: str, *states: str, attempt: int) -> None:
        """Publish the controller's events for the pods with index 0."""
        for state in states:
            news = messages.TaskChanged(
                job=job,
                uid=uid,
                task="w",
                index=0,
                pod=f"p{attempt}",
                pod_uid=f"uid-{attempt}",
                before="",
                after=state,
                at=builders.NOON,
                attempt=attempt,
            )
            self._tell_history(job, news)

    def tell_deletion(self, job: str, uid: str) -> None:
        """Publish the controller's events for a job that was deleted while pending."""
        entered = messages.JobPhaseChanged(
            job=job, uid=uid, queue="default", before="", after="Pending", at=builders.NOON
        )
        self._tell_history(job, entered)
        self._tell_history(job, messages.JobDeleted(job=job, uid=uid, at=builders.NOON))

    def _tell_history(self, job: str, news: base.Message) -> None:
        draft = envelope.Draft(topic=topics.BATCH_EVENTS, key=job, message=news, time=builders.NOON)
        self._admission.task_histories.fold(builders.make_record(draft))


Strom = Callable[..., Result]


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[ApiServer]:
    """A server of its own for one test."""
    started: concurrent.futures.Future[ApiServer] = concurrent.futures.Future()
    stop = asyncio.Event()

    async def serve() -> None:
        admissions: list[AdmissionService] = []

        def caller(path: str) -> Callable[[bytes], Awaitable[bytes]]:
            async def call(body: bytes) -> bytes:
                return await admissions[0].answer(path, body)

            return call

        hooks = [
            Webhook(
                name=f"{kind.plural}-{action}",
                kind=kind,
                operations=frozenset(operations),
                mutating=action == "mutate",
                call=caller(f"/{kind.plural}/{action}"),
            )
            for kind, action, operations in webhooks.RULES
        ]
        node = Node()
        cluster = EmbeddedCluster(
            tmp_path / "cluster.db", clock=runtime.utc_now, hooks=hooks, kubelets={NODE: node}
        )
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(cluster)
            admissions.append(AdmissionService(AdmissionSettings(), cluster, runtime.utc_now))
            one = ApiServer(asyncio.get_running_loop(), "", cluster, admissions[0])
            one.node = node
            app = stack.enter_context(shared_rest.rest_of(admissions[0], cluster, one.health))
            app.asgi_handler = one.watching(app.asgi_handler)
            serving = http.serving(app, http.listen("127.0.0.1", 0))
            one.url = f"http://127.0.0.1:{await stack.enter_async_context(serving)}"
            await stack.enter_async_context(admissions[0].watch_caches)
            one.health.set("cache", None)
            started.set_result(one)
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    one = started.result(timeout=120)
    try:
        for queue in ("root", "default"):
            one.create(kinds.QUEUES, builders.make_queue(queue))
        yield one
    finally:
        one.loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=120)


@pytest.fixture
def strom(api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Strom:
    """``strom`` against that server, in an empty directory."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    environment = {
        "STROM_SERVER": api_server.url,
        "STROM_NAMESPACE": None,
        "STROM_TRACEBACK": "1",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }

    def call(*arguments: str, stdin: str = "", env: dict[str, str | None] | None = None) -> Result:
        return CliRunner().invoke(
            main.app,
            arguments,
            input=stdin,
            env={**environment, **(env or {})},
            prog_name="strom",
            catch_exceptions=False,
        )

    return call
