"""Requests of every kind against the OpenAPI description: no internal errors, no
missing responses.
"""

import asyncio
import concurrent.futures
import contextlib
import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litestar import Litestar
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from stromboli.admission import log_status
from stromboli.admission.rest import application, openapi, openapi_file
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.runtime import http as serving
from stromboli.shared.runtime import runtime
from stromboli.testkit.doubles import empty_history

ANSWER_WITHIN_S = 120
EXAMPLES = 6
"""Of each operation, of which there are about forty."""
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


async def _serve(
    folder: Path, started: "concurrent.futures.Future[str]", stop: asyncio.Event
) -> None:
    async with EmbeddedBus(folder / "log.db") as bus, EmbeddedCluster(folder / "c.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        admission.idempotency_cache.open(await bus.open_writer("admission", "test"))
        admission.history = empty_history.EmptyHistory()
        health = runtime.Health("admission")
        admission.log_status = log_status.LogStatus(bus, health, {}, runtime.utc_now).read
        app = application.app(application.routes(admission, cluster))
        async with (
            serving.serving(app, serving.listen("127.0.0.1", 0)) as port,
            admission.watch_caches,
        ):
            started.set_result(f"http://127.0.0.1:{port}")
            await stop.wait()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in a thread, since its callers block."""
    started: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_serve(tmp_path_factory.mktemp("served"), started, stop))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield started.result(timeout=120)
    loop.call_soon_threadsafe(stop.set)
    thread.join(timeout=120)


SCHEMA = schemathesis.openapi.from_path(openapi_file.FILE)
OPERATIONS: list[Any] = [
    found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)
]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_response_is_described_in_the_openapi_document(url: str, operation: Any) -> None:
    """Never an internal error or a missing response, and never a shape that the document does not
    contain.
    """

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), mode=st.sampled_from(MODES))
    def ask(data: st.DataObject, mode: GenerationMode) -> None:
        try:
            case = data.draw(operation.as_strategy(generation_mode=mode))
        except schemathesis.errors.SchemathesisError:
            return  # no request of this kind exists there
        if case.path.startswith("/v1/watch"):
            case.query = {**(case.query or {}), "timeoutSeconds": "0.02"}
        response = case.call(base_url=url, timeout=ANSWER_WITHIN_S)
        case.validate_response(response, checks=CHECKS)

    ask()


def test_a_too_long_request_line_names_its_part(url: str) -> None:
    """Not rejected as a request that cannot be parsed."""
    requested = http.client.HTTPConnection(url.removeprefix("http://"), timeout=ANSWER_WITHIN_S)
    with contextlib.closing(requested):
        requested.request("GET", "/v1/podgroups?continue=" + "a" * 400_000)
        answer = requested.getresponse()
        assert answer.status == 400
        violations = msgspec.json.decode(answer.read())["violations"]
    assert [it["path"] for it in violations] == ["continue"]


def test_the_description_is_served_as_it_is_committed(url: str) -> None:
    """``python -m stromboli.admission.rest.openapi_file`` writes it."""
    served = schemathesis.openapi.from_url(f"{url}/schema/openapi.json").raw_schema
    committed = schemathesis.openapi.from_path(openapi_file.FILE).raw_schema
    assert served == committed


def test_no_schema_is_named_after_a_module() -> None:
    """Two types of one name get their modules' as a prefix, which users of the document see."""
    schemas = SCHEMA.raw_schema["components"]["schemas"]
    assert [name for name in schemas if "_" in name] == []


def test_every_example_is_accepted() -> None:
    """And every body has one."""
    described: Litestar = application.application_for_openapi()
    document = openapi.complete(described.openapi_schema.to_schema())
    posted = {
        path
        for path, operations in document["paths"].items()
        if "requestBody" in operations.get("post", {})
    }
    assert posted == {*openapi.BODIES, "/v1/bulk"}
    assert webhooks.BODY_LIMIT_BYTES == application.BODY_LIMIT_BYTES
