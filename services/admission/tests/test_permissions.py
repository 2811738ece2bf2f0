"""Queues and priority classes are used by those they name, whichever way an object comes."""

from typing import Any

import msgspec
import pytest

from stromboli.admission.auth import principal
from stromboli.admission.review.incoming import RefusedError
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit import admission_documents
from stromboli.testkit.contracts.accounts import AUDIENCE, Scene
from stromboli.testkit.guarded import House, opened, token_of

PATHS = {"spec.queue", "spec.priorityClassName"}
SERVICE = "system:serviceaccount:stromboli:controller"


@pytest.fixture
async def house(tmp_path: Any) -> Any:
    async with opened(tmp_path, Scene(), service_accounts=(SERVICE,)) as made:
        yield made


async def restrict(house: House, **lists: str) -> None:
    """A queue and a priority class, both named gold, for those in the lists."""
    noted = {f"{keys.PREFIX}allowed-{word}": text for word, text in lists.items()}
    for kind, rest in ((kinds.QUEUES, {"spec": {}}), (kinds.PRIORITY_CLASSES, {"value": 7})):
        made = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "gold", "annotations": noted},
            **rest,
        }
        await house.cluster.create(kind, "", msgspec.json.encode(made))


def document(house: House, **spec: Any) -> dict[str, Any]:
    made = admission_documents.job(**spec)
    made["metadata"] = {"name": "train", "namespace": house.scene.blue}
    return made


async def by_rest(house: House, user: str, made: dict[str, Any]) -> set[str]:
    """The paths that a user is refused for."""
    async with house.as_(user) as client:
        answer = await client.post("/v1/apply", json={"objects": [made]})
    if answer.is_success:
        return set()
    assert answer.status_code == 422, answer.text
    return {each["path"] for each in answer.json()["violations"]}


async def by_kafka(house: House, user: str, made: dict[str, Any]) -> set[str]:
    """The same through the door itself, as submissions from Kafka come in."""
    asker = await house.askers.asker(token_of(user), (AUDIENCE,))
    try:
        await house.door.submit([made], asker, way="kafka", only_new=True)
    except RefusedError as error:
        return {each.path for each in error.violations}
    return set()


async def by_webhook(house: House, user: str, made: dict[str, Any], **rest: Any) -> set[str]:
    """The same as an API server asks."""
    answer = await house.door.answer("/jobs/validate", review(house.scene.user(user), made, **rest))
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


@pytest.mark.parametrize("way", WAYS)
async def test_a_restricted_queue_or_priority_takes_those_it_names(house: House, way: Any) -> None:
    await restrict(house, users="nobody-here")
    made = document(house, queue="gold", priorityClassName="gold")
    assert await way(house, "ann", made) == PATHS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by", ["users", "namespaces"])
async def test_who_is_named_may_use_them(house: House, way: Any, by: str) -> None:
    named = house.scene.user("ann") if by == "users" else house.scene.blue
    await restrict(house, **{by: f"other,{named}"})
    made = document(house, queue="gold", priorityClassName="gold")
    assert await way(house, "ann", made) == set()


async def test_a_webhook_hears_the_groups_of_the_user(house: House) -> None:
    await restrict(house, groups="vision")
    made = document(house, queue="gold")
    path = "/jobs/validate"
    for groups, is_allowed in ((("vision",), True), (("all",), False)):
        answer = await house.door.answer(path, review("zoe", made, groups))
        assert msgspec.json.decode(answer)["response"]["allowed"] == is_allowed


async def test_a_service_writes_for_the_recorded_submitter_alone(house: House) -> None:
    """The child job of a flow whose submitter may no longer use the queue stays out."""
    await restrict(house, users="ann")
    made = document(house, queue="gold")
    for user, is_allowed in (("ann", True), ("bob", False), ("", False)):
        made["metadata"]["annotations"] = {keys.USER: user} if user else {}
        answer = await house.door.answer("/jobs/validate", review(SERVICE, made))
        assert msgspec.json.decode(answer)["response"]["allowed"] == is_allowed
        answer = await house.door.answer("/jobs/mutate", review(SERVICE, made))
        assert b"stromboli.sh~1user" not in msgspec.json.encode(msgspec.json.decode(answer))


async def test_a_name_that_is_forged_in_a_request_is_replaced(house: House) -> None:
    made = document(house)
    made["metadata"]["annotations"] = {keys.USER: "boss", keys.USER_GROUPS: "admins"}
    assert await by_rest(house, "ann", made) == set()
    stored = await house.cluster.get(kinds.JOBS, house.scene.blue, "train")
    noted = kinds.metadata_of(stored).annotations or {}
    assert noted[keys.USER] == house.scene.user("ann")
    assert "admins" not in noted.get(keys.USER_GROUPS, "")


async def test_without_accounts_the_user_of_the_machine_is_asked_like_any_other(
    house: House,
) -> None:
    await restrict(house, namespaces="elsewhere")
    with pytest.raises(RefusedError):
        await house.door.submit([document(house, queue="gold")], principal.ANYONE)
