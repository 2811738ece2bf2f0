"""Requests to a real HTTP server: each gets a response, or the reason why there is none."""

import socket
import threading

import pytest

from stromboli.scheduler import extenders
from stromboli.scheduler.core.framework import external_calls
from stromboli.testkit.doubles import http_server


def requested(*questions: external_calls.ExternalRequest) -> list[external_calls.ExternalResponse]:
    with extenders.ExtenderClient() as caller:
        return list(caller(questions))


PATIENT_S = 60.0
"""The time limit of requests in tests that are about other errors."""


def echo(request: http_server.Request) -> http_server.Reply:
    return http_server.Reply(request.path.encode() + b" " + request.body)


def test_responses_have_the_order_of_the_requests() -> None:
    """However many go out side by side."""
    with http_server.Server(echo) as server:
        questions = [
            external_calls.ExternalRequest(f"{server.url}/verb", str(at).encode(), PATIENT_S)
            for at in range(50)
        ]
        answers = requested(*questions)
    assert [answer.body for answer in answers] == [f"/verb {at}" for at in range(50)]
    assert {request.method for request in server.requests} == {"POST"}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (http_server.Reply(b"no", 500), "it responded with status 500"),
        (http_server.Reply(b"", 204), "it responded with status 204"),
        (http_server.Reply(b"\xff"), "its response is not UTF-8"),
        (
            http_server.Reply(b"0" * (extenders.MAX_RESPONSE_BYTES + 1)),
            "its response has more than",
        ),
    ],
    ids=["500", "204", "bytes", "endless"],
)
def test_an_invalid_response_of_an_extender_is_reported_with_its_reason(
    reply: http_server.Reply, error: str
) -> None:
    with http_server.Server(lambda request: reply) as server:
        (answer,) = requested(external_calls.ExternalRequest(server.url, b"{}", PATIENT_S))
    assert answer.body == ""
    assert error in answer.error


def test_a_slow_extender_counts_as_failed() -> None:
    done = threading.Event()

    def slow(request: http_server.Request) -> http_server.Reply:
        done.wait()
        return http_server.Reply()

    with http_server.Server(slow) as server:
        (answer,) = requested(external_calls.ExternalRequest(server.url, b"{}", timeout_s=0.05))
        done.set()
    assert answer.error == "no response within 0.05 s"


def test_requests_after_a_failed_one_are_not_sent() -> None:
    """A dead extender costs one timeout, not one for each node."""
    with socket.socket() as bound:  # it does not listen, and no other process can on its port
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        answers = requested(*[external_calls.ExternalRequest(url, b"{}", PATIENT_S)] * 500)
    assert all(answer.error for answer in answers)
    assert sum("not called" in answer.error for answer in answers) > 400


def test_an_invalid_url_is_reported() -> None:
    (answer,) = requested(external_calls.ExternalRequest("http://[", b"{}"))
    assert answer.error
