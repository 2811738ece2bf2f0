"""What an API server's answers mean. The bodies are recorded from kube-apiserver 1.34."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster.kubernetes import cluster, line_splitter, listing, status


def answer(message: str, reason: str = "", details: dict[str, object] | None = None) -> bytes:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details or {},
    }
    return msgspec.json.encode(body)


STALE = (
    'Operation cannot be fulfilled on pods "p1": the object has been modified; please apply your '
    "changes to the latest version and try again"
)
BOUND = (
    'Operation cannot be fulfilled on pods/binding "p1": pod p1 is already assigned to node "n1"'
)
IMMUTABLE_UID = [
    {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "1": field is immutable',
        "field": "metadata.uid",
    }
]
REQUIRED = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}]
NO_RIGHT = (
    'pods is forbidden: User "weak" cannot list resource "pods" in API group "" at the cluster '
    "scope"
)


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (404, answer('pods "p" not found', "NotFound"), errors.NotFoundError),
        (404, b"404 page not found\n", errors.NotFoundError),
        (409, answer('pods "p1" already exists', "AlreadyExists"), errors.AlreadyExistsError),
        (409, answer(STALE, "Conflict"), errors.ConflictError),
        (409, answer(BOUND, "Conflict"), errors.ConflictError),
        (
            422,
            answer("the server rejected our request due to an error in our request", "Invalid"),
            errors.ConflictError,
        ),
        (
            422,
            answer('Pod "p1" is invalid', "Invalid", {"causes": IMMUTABLE_UID}),
            errors.ConflictError,
        ),
        (422, answer('Pod "p1" is invalid', "Invalid", {"causes": REQUIRED}), errors.InvalidError),
        (400, answer("json parse error", "BadRequest"), errors.InvalidError),
        (403, answer(NO_RIGHT, "Forbidden"), errors.ForbiddenError),
        (
            403,
            answer('pods "p1" is forbidden: exceeded quota: rq', "Forbidden"),
            errors.InvalidError,
        ),
        (
            403,
            answer('admission webhook "a.b" denied the request: no', "Forbidden"),
            errors.InvalidError,
        ),
        (401, answer("Unauthorized", "Unauthorized"), errors.ForbiddenError),
        (410, answer("too old resource version: 1 (247)", "Expired"), errors.ExpiredError),
        (
            413,
            answer("Request entity too large: limit is 3145728", "RequestEntityTooLarge"),
            errors.TooLargeError,
        ),
        (500, answer("etcdserver: request is too large"), errors.TooLargeError),
        (500, answer("failed calling webhook", "InternalError"), errors.TransientError),
        (503, b"upstream connect error", errors.UnavailableError),
        (504, b"upstream request timeout", errors.TransientError),
        (405, answer("method not allowed", "MethodNotAllowed"), errors.UnsupportedError),
        (501, b"Unsupported method ('PATCH')", errors.UnsupportedError),
    ],
)
def test_an_error_is_classified_by_its_reason_and_not_only_its_code(
    code: int, body: bytes, expected: type[errors.ExternalError]
) -> None:
    assert type(status.translate("patch Pod default/p1", code, body)) is expected


def test_a_refusal_carries_all_causes() -> None:
    error = status.translate("x", 422, answer("Pod is invalid", "Invalid", {"causes": REQUIRED}))
    assert error.reason == "Pod is invalid; spec.x: Required value"


def test_the_longer_of_two_retry_delays_is_used() -> None:
    """A busy server sends a retry delay in the header and in the body."""
    body = answer("too many requests", "TooManyRequests", {"retryAfterSeconds": 2})
    for header, expected in (("1", 2.0), ("5", 5.0), ("", 2.0), ("Wed, 21 Oct", 2.0)):
        error = status.translate("x", 429, body, header)
        assert isinstance(error, errors.TransientError)
        assert error.retry_after_s == expected


def test_an_error_in_a_watch_has_its_code_inside() -> None:
    gone = answer("too old resource version", "Expired").replace(
        b'"reason"', b'"code":410,"reason"'
    )
    with pytest.raises(errors.ExpiredError):
        cluster.read_event("watch Pod", b'{"type":"ERROR","object":' + gone + b"}")
    with pytest.raises(errors.TransientError):
        cluster.read_event("watch Pod", b'{"type":"ERROR","object":{}}')
    with pytest.raises(errors.TransientError):
        cluster.read_event("watch Pod", b'{"type":"ADD')


@given(
    st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line)),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_lines_do_not_depend_on_how_they_are_cut(whole: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in whole)
    splitter, found, begin = line_splitter.LineSplitter(), [], 0
    for end in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        found += splitter.feed(stream[begin:end])
        begin = end
    assert found == whole


def test_a_long_line_is_read_and_a_truncated_one_is_not() -> None:
    splitter = line_splitter.LineSplitter()
    half = b"x" * (1 << 22)
    assert splitter.feed(half) == []
    assert splitter.feed(half + b"\nrest") == [half + half]
    assert splitter.feed(b" of it") == []


def page(names: str, version: str, more: str = "") -> bytes:
    items = [{"metadata": {"name": name}} for name in names]
    return msgspec.json.encode(
        {"metadata": {"resourceVersion": version, "continue": more}, "items": items or None}
    )


def test_pages_make_one_list_of_the_first_version() -> None:
    pages = listing.Pages()
    assert pages.query() == {"limit": "500"}
    assert pages.add(page("ab", "7", "t1")) is None
    assert pages.query() == {"limit": "500", "continue": "t1"}
    whole = pages.add(page("c", "7"))
    assert whole is not None
    assert whole.resource_version == "7"
    assert [msgspec.json.decode(item)["metadata"]["name"] for item in whole.items] == list("abc")


def test_an_incomplete_list_is_restarted() -> None:
    """If its version expires during the pages, the list starts again from the beginning."""
    pages = listing.Pages()
    pages.add(page("ab", "7", "t1"))
    assert pages.expired()
    assert pages.query() == {}
    whole = pages.add(page("bc", "9"))
    assert whole is not None
    assert (whole.resource_version, len(whole.items)) == ("9", 2)
    assert not pages.expired()


def test_an_empty_list_is_whole() -> None:
    whole = listing.Pages().add(page("", "3"))
    assert whole is not None
    assert whole.items == ()


DEEP = b"[" * 9000 + b"]" * 9000


def test_an_object_that_is_nested_too_deeply_hides_no_other_of_its_list() -> None:
    deep = b'{"metadata": {"name": "a", "labels": {"x": "\\"{["}}, "spec": {"x": %s}}' % DEEP
    other = b'{"metadata": {"name": "b"}}'
    whole = b'{"metadata": {"resourceVersion": "7"}, "items": [%s, %s]}' % (deep, other)
    assert listing.page(whole).items == (deep, other)
    found = listing.Pages().add(whole)
    assert found is not None
    assert (found.items, found.resource_version) == ((deep, other), "7")


def test_an_event_about_an_object_that_is_nested_too_deeply_is_read() -> None:
    deep = b'{"metadata": {"name": "a"}, "spec": %s}' % DEEP
    event = cluster.read_event("watch", b'{"type": "ADDED", "object": %s}' % deep)
    assert (event.type, event.object) == ("ADDED", deep)


def test_an_object_that_is_nested_too_deeply_has_a_name_and_is_not_readable() -> None:
    deep = b'{"spec": %s, "metadata": {"name": "a"}}' % DEEP
    assert kinds.name_of(deep) == "a"
    with pytest.raises(msgspec.DecodeError):
        kinds.JOBS.decode(deep)
