"""With accounts, REST allows each user exactly what the cluster's RBAC allows."""

import asyncio
import base64
import functools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stromboli.admission import __main__ as process
from stromboli.admission.auth import authentication
from stromboli.admission.rest import application, authorization
from stromboli.admission.settings import Settings
from stromboli.shared import envelope, errors, keys, topics
from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster import accounts
from stromboli.shared.messages.admission import ObjectReviewed
from stromboli.shared.messages.scheduling import QueueOrdered, queue_order_key
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders
from stromboli.testkit.contracts.accounts import OTHER_AUDIENCE, Scene
from stromboli.testkit.doubles.authorized_admission import (
    AuthorizedAdmission,
    open_admission,
    token_of,
)

Document = dict[str, Any]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AuthorizedAdmission]:
    async with open_admission(tmp_path, Scene()) as one:
        yield one


class AnyToken:
    """An API server that accepts every token."""

    async def own_username(self) -> str:
        return "admission"

    async def authenticate(self, token: str, audiences: Sequence[str]) -> accounts.User:
        return accounts.User(name="ann")

    async def is_allowed(self, user: accounts.User, right: accounts.Right) -> bool:
        return True


def job(name: str, namespace: str = "", **spec: Any) -> Document:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": template}], **spec},
    }


def jobs(namespace: str) -> str:
    return f"/v1/namespaces/{namespace}/jobs"


def missing(answer: httpx.Response) -> list[str]:
    """The missing rights that a response lists."""
    assert answer.status_code == 403, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    return [item["reason"] for item in answer.json()["violations"]]


# --- the table ------------------------------------------------------------------------------


@functools.cache
def routes() -> list[tuple[str, str, Any]]:
    """(method, path, rule) of every route."""
    app = application.application_for_openapi()
    return [
        (method, route.path_format, handler.opt.get(authorization.OPT))
        for route in app.routes
        for handler in route.route_handlers  # type: ignore[union-attr]  # all are HTTP
        for method in handler.http_methods
        if method != "OPTIONS"
    ]


def test_every_route_declares_the_rights_it_needs() -> None:
    """Or is on the short list of routes that all users may read."""
    without = {path for _, path, rule in routes() if rule is None}
    assert all(authorization.is_open(path) for path in without), without
    assert authorization.OPEN == ("/livez", "/readyz", "/schema")
    assert not authorization.is_open("/livezz")


async def test_every_route_rejects_users_without_rights(server: AuthorizedAdmission) -> None:
    """Each names every right that it needs: verb, resource, group and namespace."""
    blue = server.scene.blue
    async with server.as_("eve") as eve:
        for method, path, rule in routes():
            if rule is None:
                continue
            concrete = path.replace("{namespace}", blue).replace("{name}", "some")
            answer = await eve.request(method, concrete, **body_for(path, blue))
            if path == "/v1/me":  # every user may know who they are
                assert answer.json()["name"].endswith(":eve")
                continue
            if path == "/v1/pod-sessions":  # only an address, which checks the rights itself
                assert answer.json() == {"url": ""}
                continue
            if path == "/v1/bulk":
                assert [item["status"] for item in answer.json()["items"]] == [403]
                continue
            said = missing(answer)
            assert len(said) == max(len(rule), 1), path
            for needed, reason in zip(rule, said, strict=bool(rule)):
                sub = f"/{needed.subresource}" if needed.subresource else ""
                assert f'cannot {needed.verb} resource "{needed.kind.plural}{sub}"' in reason, path
                assert f'in API group "{needed.kind.group}"' in reason, path
                is_inside = "{namespace}" in path and needed.kind.namespaced
                where = f'in the namespace "{blue}"' if is_inside else "at the cluster scope"
                assert reason.endswith(where), path


def body_for(path: str, namespace: str) -> dict[str, Any]:
    made = job("some", namespace)
    if path == "/v1/bulk":
        declared = {"content-type": "application/x-ndjson"}
        return {"content": msgspec.json.encode(made), "headers": declared}
    return {"json": {"objects": [made]}} if path in ("/v1/apply", "/v1/check") else {}


# --- authentication -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer made-up", "Basic YTpi", f"Bearer {token_of('ann', OTHER_AUDIENCE)}"],
    ids=["none", "empty", "made up", "another scheme", "another audience"],
)
async def test_requests_without_a_valid_token_are_rejected(
    server: AuthorizedAdmission, header: str
) -> None:
    headers = {"authorization": header} if header else {}
    async with server.client() as client:
        answer = await client.get(jobs(server.scene.blue), headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    problem = answer.json()
    assert problem["status"] == 401
    assert problem["detail"]
    assert "made-up" not in answer.text
    assert "secret" not in answer.text


async def test_whether_we_are_well_and_how_to_talk_to_us_is_open(
    server: AuthorizedAdmission,
) -> None:
    """Metrics are not: they have a port of their own."""
    async with server.client() as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/schema/openapi.json")).status_code == 200
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.get("/schema/none")).status_code == 404


async def test_all_requests_are_rejected_while_the_api_server_is_unreachable(
    server: AuthorizedAdmission,
) -> None:
    """Neither a user without a TokenReview nor one without a SubjectAccessReview."""
    async with server.as_("ann") as ann:
        assert (await ann.get(jobs(server.scene.blue))).status_code == 200
        server.accounts.is_away = True
        assert (await ann.get(jobs(server.scene.blue))).status_code == 200  # it was just reported
        assert (await ann.get("/v1/queues")).status_code == 503
        server.now += 11
        assert (await ann.get(jobs(server.scene.blue))).status_code == 503


async def test_reviews_are_cached_for_seconds_and_no_longer(server: AuthorizedAdmission) -> None:
    async with server.as_("ann") as ann:
        await ann.get(jobs(server.scene.blue))
        right = server.accounts.right
        for _ in range(5):
            await ann.get(jobs(server.scene.blue))
        assert server.accounts.right == right
        server.now += 10
        await ann.get(jobs(server.scene.blue))
        assert server.accounts.right > right


# --- what they may ---------------------------------------------------------------------------


async def test_tenants_see_their_namespace_and_no_other(server: AuthorizedAdmission) -> None:
    scene = server.scene
    async with server.as_("ann") as ann, server.as_("op") as op:
        assert (await ann.post(jobs(scene.blue), json=job("own"))).status_code == 201
        assert len((await ann.get(jobs(scene.blue))).json()["items"]) == 1
        assert scene.red in missing(await ann.get(jobs(scene.red)))[0]
        assert "cluster scope" in missing(await ann.get("/v1/jobs"))[0]
        assert (await op.get("/v1/jobs")).status_code == 200
        assert (await ann.get(f"/v1/pods?namespace={scene.blue}")).status_code == 200
        assert missing(await ann.get(f"/v1/pods?namespace={scene.red}"))
        assert missing(await ann.get("/v1/pods"))


async def test_a_namespace_in_the_query_opens_no_list_of_all(server: AuthorizedAdmission) -> None:
    """Where a route does not look at it, neither does its rule."""
    async with server.as_("ann") as ann:
        assert missing(await ann.get(f"/v1/jobs?namespace={server.scene.blue}"))
        twice = f"/v1/pods?namespace={server.scene.blue}&namespace={server.scene.red}"
        assert (await ann.get(twice)).status_code == 422


async def test_tenants_can_watch_only_their_namespace(server: AuthorizedAdmission) -> None:
    """A stream ends soon, so that rights are checked again."""
    scene = server.scene
    async with server.as_("ann") as ann:
        await ann.post(jobs(scene.blue), json=job("own"))
        response = await ann.get(f"/v1/watch/namespaces/{scene.blue}/jobs")
        assert "event: added" in response.text
        assert "event: synced" in response.text
        assert missing(await ann.get(f"/v1/watch/namespaces/{scene.red}/jobs"))
        assert missing(await ann.get("/v1/watch/jobs"))
        assert missing(await ann.get("/v1/watch/queues"))


async def test_each_object_is_authorized_before_any_is_written(
    server: AuthorizedAdmission,
) -> None:
    scene = server.scene
    objects = [job("mine", scene.blue), job("theirs", scene.red)]
    async with server.as_("ann") as ann:
        for entry_point in ("apply", "check"):
            answer = await ann.post(f"/v1/{entry_point}", json={"objects": objects})
            (violation,) = answer.json()["violations"]
            assert violation["path"] == "objects[1].rights"
            assert 'cannot get resource "jobs" named "theirs"' in violation["reason"]
            assert f"Role of namespace {scene.red}" in violation["expected"]
            assert "verbs: [get]" in violation["expected"]
        assert (await ann.get(jobs(scene.blue))).json()["items"] == []


async def test_a_change_needs_another_right_than_a_new_object(server: AuthorizedAdmission) -> None:
    scene = server.scene
    async with server.as_("ann") as ann:
        objects = {"objects": [job("mine", scene.blue)]}
        assert (await ann.post("/v1/apply", json=objects)).status_code == 200
        changed = {"objects": [job("mine", scene.blue, priorityClassName="high")]}
        (reason,) = missing(await ann.post("/v1/apply", json=changed))
        assert 'cannot patch resource "jobs" named "mine"' in reason
        response = await ann.post(jobs(scene.blue), json=job("mine"))
        assert response.status_code == 409


async def test_a_rejection_for_a_missing_right_is_recorded_as_a_review(
    server: AuthorizedAdmission,
) -> None:
    scene = server.scene
    async with server.as_("ann") as ann:
        objects = {"objects": [job("mine", scene.blue)]}
        await ann.post("/v1/apply", json=objects)
        await ann.post("/v1/apply", json={"objects": [job("mine", scene.blue, queue="x")]})
    reviews = []
    while not server.admission.pending_reviews.empty():
        reviews.append(server.admission.pending_reviews.get_nowait().message)
    found = [
        each for each in reviews if isinstance(each, ObjectReviewed) and each.entry_point == "rest"
    ]
    assert [(each.user, each.allowed) for each in found] == [
        (scene.user("ann"), True),
        (scene.user("ann"), False),
    ]
    assert "cannot patch" in found[1].violations[0].reason


async def test_in_bulk_each_line_has_its_own_rights(server: AuthorizedAdmission) -> None:
    scene = server.scene
    lines = [job("mine", scene.blue), job("theirs", scene.red), job("mine-2", scene.blue)]
    content = msgspec.json.Encoder().encode_lines(lines)
    async with server.as_("ann") as ann:
        declared = {"content-type": "application/x-ndjson"}
        answer = (await ann.post("/v1/bulk", content=content, headers=declared)).json()
    assert [item["result"] for item in answer["items"]] == ["created", "refused", "created"]
    assert answer["items"][1]["status"] == 403
    assert f'in the namespace "{scene.red}"' in answer["items"][1]["violations"][0]["reason"]


async def test_a_job_records_its_submitter(server: AuthorizedAdmission) -> None:
    """The write itself has our name; webhooks do not take it for the submitter's."""
    scene = server.scene
    claimed = job("own")
    claimed["metadata"]["annotations"] = {keys.USER: "somebody-else"}
    async with server.as_("ann") as ann:
        made = (await ann.post(jobs(scene.blue), json=claimed)).json()
    assert made["metadata"]["annotations"][keys.USER] == scene.user("ann")


async def test_an_idempotency_key_is_valid_only_for_its_user(server: AuthorizedAdmission) -> None:
    server.admission.idempotency_cache.open(_Log())  # type: ignore[arg-type]  # it takes what it is given
    headers = {"Idempotency-Key": "k"}
    async with server.as_("ann") as ann, server.as_("op") as op:
        where, made = jobs(server.scene.blue), job("own")
        first = await ann.post(where, json=made, headers=headers)
        again = await ann.post(where, json=made, headers=headers)
        assert (first.status_code, first.json()) == (201, again.json())
        assert (await op.post(where, json=made, headers=headers)).status_code == 409


class _Log:
    async def append(self, *drafts: envelope.Draft) -> tuple[()]:
        del drafts
        return ()


async def test_jobs_ahead_are_named_only_to_users_who_may_list_them(
    server: AuthorizedAdmission,
) -> None:
    scene = server.scene
    async with server.as_("ann") as ann:
        made = (await ann.post(jobs(scene.blue), json=job("own"))).json()
        group = f"{scene.blue}/own-{made['metadata']['uid']}"
        explained = builders.make_explanation(group)
        order = QueueOrdered(queue="default", pod_groups=(f"{scene.red}/secret-1", group))
        for key, message in ((group, explained), (queue_order_key("default"), order)):
            draft = envelope.Draft(
                topic=topics.EXPLANATIONS, key=key, message=message, time=builders.NOON
            )
            server.admission.fold(builders.make_record(draft))
        seen = (await ann.get(f"{jobs(scene.blue)}/own/explanation")).json()
        stream = await ann.get(f"/v1/watch/namespaces/{scene.blue}/jobs/own/explanation")
    assert seen["inFront"] == ["(another namespace)"]
    assert "in_front" not in stream.text
    assert '"inFront":["(another namespace)"]' in stream.text
    assert "secret" not in stream.text


# --- the parts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expires_in_s", "lasts_s"),
    [
        pytest.param(3600, 300, id="an hour"),
        pytest.param(60, 60, id="a minute"),
        pytest.param(3, 10, id="sooner than reviews are repeated"),
        pytest.param(-20, 10, id="expired, and accepted by the API server"),
        pytest.param(None, 300, id="not a JWT"),
    ],
)
async def test_a_stream_ends_with_its_token(expires_in_s: float | None, lasts_s: float) -> None:
    claims = msgspec.json.encode({"exp": 1000 + (expires_in_s or 0)})
    token = f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"
    authenticator = authentication.Authenticator(AnyToken(), 10.0, lambda: 0.0, wall=lambda: 1000.0)
    principal = await authenticator.authenticate("opaque" if expires_in_s is None else token, ())
    assert principal.streams_last_s == lasts_s


async def test_concurrent_equal_reviews_share_one_request() -> None:
    right = 0
    release = asyncio.Event()

    async def ask() -> int:
        nonlocal right
        right += 1
        await release.wait()
        return right

    recent: authentication.TtlCache[int] = authentication.TtlCache(10.0, lambda: 0.0, 100)
    waiting = [asyncio.ensure_future(recent.get(b"k", ask)) for _ in range(5)]
    await asyncio.sleep(0)
    release.set()
    assert await asyncio.gather(*waiting) == [1] * 5


async def test_failures_are_not_cached_and_the_cache_is_bounded() -> None:
    async def fail() -> int:
        raise errors.UnavailableError("x", "y")

    async def ask() -> int:
        return 1

    recent: authentication.TtlCache[int] = authentication.TtlCache(10.0, lambda: 0.0, 3)
    with pytest.raises(errors.UnavailableError):
        await recent.get(b"k", fail)
    assert await recent.get(b"k", ask) == 1
    for number in range(10):
        await recent.get(str(number).encode(), ask)
    assert len(recent) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "STROM_ADMISSION_ACCOUNTS=true"),
        ({"accounts": True}, "STROM_ADMISSION_CERTIFICATE"),
        ({"accounts": True, "rest_open_to_all": True}, "contradict"),
    ],
)
async def test_beyond_loopback_there_are_accounts_and_a_certificate(
    changes: Document, said: str
) -> None:
    settings = Settings(kafka=KafkaSettings(bootstrap=("b:1",)), rest_host="0.0.0.0", **changes)
    with pytest.raises(SystemExit, match=said):
        await process.main(settings, runtime.Health("admission"))
