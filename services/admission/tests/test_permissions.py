"""Queues and priority classes are used only by those in their annotations, at every entry point."""

from typing import Any

import msgspec
import pytest

from stromboli.admission.auth import authentication
from stromboli.admission.review.submitted_objects import RejectedError
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.contracts.accounts import AUDIENCE, Scene
from stromboli.testkit.doubles.authorized_admission import (
    AuthorizedAdmission,
    open_admission,
    token_of,
)

PATHS = {"spec.queue", "spec.priorityClassName"}
SERVICE = "system:serviceaccount:stromboli:controller"


@pytest.fixture
async def server(tmp_path: Any) -> Any:
    async with open_admission(
        tmp_path, Scene(), service_accounts=(SERVICE,)
    ) as authorized_admission:
        yield authorized_admission


async def restrict(server: AuthorizedAdmission, **lists: str) -> None:
    """A queue and a priority class, both named gold, for those in the lists."""
    noted = {f"{keys.PREFIX}allowed-{word}": text for word, text in lists.items()}
    for kind, rest in ((kinds.QUEUES, {"spec": {}}), (kinds.PRIORITY_CLASSES, {"value": 7})):
        made = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "gold", "annotations": noted},
            **rest,
        }
        await server.cluster.create(kind, "", msgspec.json.encode(made))


def document(server: AuthorizedAdmission, **spec: Any) -> dict[str, Any]:
    made = manifests.job(**spec)
    made["metadata"] = {"name": "train", "namespace": server.scene.blue}
    return made


async def by_rest(server: AuthorizedAdmission, user: str, made: dict[str, Any]) -> set[str]:
    """The paths that a user is refused for."""
    async with server.as_(user) as client:
        answer = await client.post("/v1/apply", json={"objects": [made]})
    if answer.is_success:
        return set()
    assert answer.status_code == 422, answer.text
    return {each["path"] for each in answer.json()["violations"]}


async def by_kafka(server: AuthorizedAdmission, user: str, made: dict[str, Any]) -> set[str]:
    """The same through submissions over Kafka."""
    principal = await server.authenticator.authenticate(token_of(user), (AUDIENCE,))
    try:
        await server.admission.submit([made], principal, entry_point="kafka", only_new=True)
    except RejectedError as error:
        return {each.path for each in error.violations}
    return set()


async def by_webhook(
    server: AuthorizedAdmission, user: str, made: dict[str, Any], **rest: Any
) -> set[str]:
    """The same as the request of an API server."""
    answer = await server.admission.answer(
        "/jobs/validate", review(server.scene.user(user), made, **rest)
    )
    response = msgspec.json.decode(answer)["response"]
    if response["allowed"]:
        return set()
    return {path for path in PATHS if f"{path}: " in response["status"]["message"]}


def review(name: str, made: dict[str, Any], groups: tuple[str, ...] = (), **rest: Any) -> bytes:
    group, _, version = made["apiVersion"].partition("/")
    request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": made["kind"]},
        "operation": "CREATE",
        "namespace": made["metadata"]["namespace"],
        "object": made,
        "userInfo": {"username": name, "groups": groups},
        **rest,
    }
    return msgspec.json.encode({"request": request})


WAYS = [by_rest, by_kafka, by_webhook]


@pytest.mark.parametrize("entry_point", WAYS)
async def test_a_restricted_queue_or_priority_accepts_those_it_names(
    server: AuthorizedAdmission, entry_point: Any
) -> None:
    await restrict(server, users="nobody-here")
    made = document(server, queue="gold", priorityClassName="gold")
    assert await entry_point(server, "ann", made) == PATHS


@pytest.mark.parametrize("entry_point", WAYS)
@pytest.mark.parametrize("by", ["users", "namespaces"])
async def test_named_users_may_use_them(
    server: AuthorizedAdmission, entry_point: Any, by: str
) -> None:
    named = server.scene.user("ann") if by == "users" else server.scene.blue
    await restrict(server, **{by: f"other,{named}"})
    made = document(server, queue="gold", priorityClassName="gold")
    assert await entry_point(server, "ann", made) == set()


async def test_a_webhook_receives_the_groups_of_the_user(server: AuthorizedAdmission) -> None:
    await restrict(server, groups="vision")
    made = document(server, queue="gold")
    path = "/jobs/validate"
    for groups, is_allowed in ((("vision",), True), (("all",), False)):
        answer = await server.admission.answer(path, review("zoe", made, groups))
        assert msgspec.json.decode(answer)["response"]["allowed"] == is_allowed


async def test_a_service_writes_only_for_the_recorded_submitter(
    server: AuthorizedAdmission,
) -> None:
    """The child job of a flow is rejected if its submitter may no longer use the queue."""
    await restrict(server, users="ann")
    made = document(server, queue="gold")
    for user, is_allowed in (("ann", True), ("bob", False), ("", False)):
        made["metadata"]["annotations"] = {keys.USER: user} if user else {}
        answer = await server.admission.answer("/jobs/validate", review(SERVICE, made))
        assert msgspec.json.decode(answer)["response"]["allowed"] == is_allowed
        answer = await server.admission.answer("/jobs/mutate", review(SERVICE, made))
        assert b"stromboli.sh~1user" not in msgspec.json.encode(msgspec.json.decode(answer))


async def test_a_name_that_is_forged_in_a_request_is_replaced(server: AuthorizedAdmission) -> None:
    made = document(server)
    made["metadata"]["annotations"] = {keys.USER: "boss", keys.USER_GROUPS: "admins"}
    assert await by_rest(server, "ann", made) == set()
    stored = await server.cluster.get(kinds.JOBS, server.scene.blue, "train")
    noted = kinds.metadata_of(stored).annotations or {}
    assert noted[keys.USER] == server.scene.user("ann")
    assert "admins" not in noted.get(keys.USER_GROUPS, "")


async def test_without_accounts_permissions_apply_to_the_user_of_the_machine(
    server: AuthorizedAdmission,
) -> None:
    await restrict(server, namespaces="elsewhere")
    with pytest.raises(RejectedError):
        await server.admission.submit(
            [document(server, queue="gold")], authentication.LOCAL_PRINCIPAL
        )


@pytest.mark.parametrize("left", ["gold", "default"])
async def test_a_job_changes_its_queue_only_between_queues_of_its_user(
    server: AuthorizedAdmission, left: str
) -> None:
    await restrict(server, users=server.scene.user("ann"))
    other = "default" if left == "gold" else "gold"
    before, after = document(server, queue=left), document(server, queue=other)
    update = {"operation": "UPDATE", "oldObject": before}
    assert await by_webhook(server, "ann", after, **update) == set()
    assert await by_webhook(server, "ben", after, **update) == {"spec.queue"}
