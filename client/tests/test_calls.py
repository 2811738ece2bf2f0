"""The meaning of a response, whatever call it answers. No server needed."""

import httpx
import msgspec
import pytest
import uvicorn

from stromboli.client import Client, errors, server
from stromboli.client.jobs import job
from stromboli.client.operations import calls

PROBLEM = "application/problem+json"


def problem(detail: str, **more: object) -> bytes:
    return msgspec.json.encode({"title": "t", "status": 0, "detail": detail, **more})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (410, errors.ExpiredError),
        (422, errors.RejectedError),
        (503, errors.UnavailableError),
        (418, errors.ResponseError),
    ],
)
def test_a_problem_is_an_error_of_its_status_with_the_servers_message(
    status: int, kind: type[errors.ResponseError]
) -> None:
    with pytest.raises(kind) as caught:
        calls.answer(calls.job("ns", "train"), status, PROBLEM, problem("because"))
    assert type(caught.value) is kind
    assert (caught.value.what, caught.value.reason) == ("job ns/train", "because")
    assert caught.value.status == status


def test_an_error_names_its_object_once() -> None:
    """Servers name it in their own message as well."""
    call = calls.create_job("default", {"metadata": {"name": "train"}})
    body = problem("Job default/train: exists already")
    with pytest.raises(errors.ConflictError) as caught:
        calls.answer(call, 409, PROBLEM, body)
    assert str(caught.value) == "job default/train: exists already"


def test_a_refusal_has_every_mistake_with_its_path() -> None:
    wrong = [{"path": "spec.queue", "reason": "unknown", "expected": "a queue"}]
    with pytest.raises(errors.RejectedError) as caught:
        calls.answer(calls.apply([]), 422, PROBLEM, problem("two", violations=wrong))
    assert [violation.path for violation in caught.value.violations] == ["spec.queue"]


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, "text/html", b"<html>"),
        (500, "text/html", b"oops"),
        (200, calls.JSON, b"{}"),
        (404, PROBLEM, problem("no such page")),
    ],
)
def test_a_response_of_another_program_is_unreadable(status: int, kind: str, body: bytes) -> None:
    """A collection always exists, so another program has sent a 404 for one."""
    with pytest.raises(errors.UnreadableError):
        calls.answer(calls.jobs("ns"), status, kind, body)


def test_a_missing_namespace_is_distinguished_from_a_missing_job() -> None:
    for call, is_creation in (
        (calls.create_job("ns", job("a", image="i")), True),
        (calls.job("ns", "a"), False),
    ):
        with pytest.raises(errors.NotFoundError) as caught:
            calls.answer(call, 404, PROBLEM, problem("not there"))
        assert caught.value.is_creation is is_creation


def test_a_command_in_one_string_is_refused_with_the_list_to_pass() -> None:
    """A string is a sequence, too: each letter would become an argument."""
    with pytest.raises(errors.InvalidArgumentError, match=r"such as \['echo', 'hi there'\]"):
        job("a", image="i", command="echo 'hi there'")


@pytest.mark.parametrize(
    "wrong", [{}, {"spec": {}}, {"metadata": None}, {"metadata": "a"}, "a.yaml"]
)
def test_an_object_that_is_no_job_is_a_client_error(wrong: object) -> None:
    """One exception family for all failures: callers need not catch KeyError as well."""
    with pytest.raises(errors.ClientError, match="job"):
        calls.create_job("default", wrong)  # type: ignore[arg-type]


def test_an_empty_name_is_never_sent() -> None:
    """The path of a job without a name is that of all jobs."""
    for call in (calls.delete_job("default", ""), calls.job("", "train"), calls.delete_queue("")):
        with pytest.raises(errors.EmptyNameError):
            server.request(call)


def test_an_idle_connection_is_dropped_before_the_server_closes_it() -> None:
    """A request on a connection that is being closed fails, and requests are not repeated."""
    limits = server.httpx_options("http://127.0.0.1:1", 1.0)["limits"]
    assert limits.keepalive_expiry < uvicorn.Config("app").timeout_keep_alive
    assert limits.max_connections == 100  # httpx's default, which Limits() does not have


def test_names_are_escaped_in_paths() -> None:
    assert calls.job("default", "../queues").path == "/v1/namespaces/default/jobs/..%2Fqueues"


def test_a_url_without_a_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROM_SERVER", "localhost:8480")
    with pytest.raises(ValueError, match="scheme"):
        server.address(None)
    assert server.address("http://here/").url == "http://here"


def test_the_more_objects_are_written_the_longer_an_answer_is_waited_for() -> None:
    """Thousands of jobs in one request are thousands of writes."""
    waited: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waited.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"counts": {}, "items": []})

    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        for count in (1, 1001):
            client.submit_many(job(f"a-{index}", image="b") for index in range(count))
    assert waited == [30.0, 530.0]


def test_warnings_of_the_server_reach_the_caller() -> None:
    """An API server's clients print them; a program decides for itself."""

    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"warning": '299 - "one", 299 - "two, \\"quoted\\""'}
        return httpx.Response(201, json={"metadata": {"name": "a"}}, headers=headers)

    seen: list[str] = []
    transport = httpx.MockTransport(answer)
    with Client("http://s", transport=transport, on_warning=seen.append) as client:
        client.submit(job("a", image="i"))
    assert seen == ["one", 'two, "quoted"']


def test_warnings_that_a_program_does_not_take_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"warning": '299 - "one"'}
        return httpx.Response(201, json={"metadata": {"name": "a"}}, headers=headers)

    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        client.submit(job("a", image="i"))
    ours = [found.getMessage() for found in caplog.records if found.name != "httpx"]
    assert ours == ["one"]
