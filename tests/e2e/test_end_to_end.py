"""The steps of ``end_to_end.feature`` over REST."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from stromboli.client import server
from stromboli.shared import keys
from tests.e2e.support import polling

scenarios("end_to_end.feature")

WITHIN_S = 120.0
"""Time limit for each step: a violated rule appears as a timeout with the last state."""
SETTLED_S = 1.0
"""How long something that must not happen is watched."""
RUN_S = "0.3"

Manifest = dict[str, Any]


class User:
    """A user with a REST client and the manifests so far."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(**server.httpx_options(url, 30))
        self.jobs: dict[str, Manifest] = {}
        self.manifest: list[Manifest] = []
        self.racks: dict[str, list[str]] = {}
        self.answer: httpx.Response | None = None

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def job(self, name: str) -> Any:
        return self.get(f"/v1/namespaces/default/jobs/{name}")

    def pods(self, name: str) -> list[Any]:
        items: list[Any] = self.get(f"/v1/namespaces/default/jobs/{name}/pods")["items"]
        return items

    def until(self, read: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        """See ``polling.until``."""
        return polling.until(read, wanted, WITHIN_S)


@pytest.fixture(autouse=True)  # so that scenarios, which name no fixture, run in every world
def user(base_url: str) -> Iterator[User]:
    made = User(base_url)
    yield made
    made.http.close()


def job(name: str, queue: str, pods: int, minimum: int, **annotations: str) -> Manifest:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    template = {
        "metadata": {"annotations": {keys.RUN_SECONDS: RUN_S, **annotations}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "queue": queue,
            "minAvailable": minimum,
            "plugins": {"env": [], "svc": []},
            "tasks": [{"name": "work", "replicas": pods, "template": template}],
        },
    }


def queue(name: str) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1},
    }


@given(parsers.parse('a queue "{name}"'))
def a_queue(user: User, name: str) -> None:
    user.http.post("/v1/queues", json=queue(name)).raise_for_status()


@given(
    parsers.parse(
        'a job "{name}" in queue "{where}" with {pods:d} pods of 1 CPU that all must run together'
    )
)
def a_gang(user: User, name: str, where: str, pods: int) -> None:
    user.jobs[name] = job(name, where, pods, pods, **{keys.STARTS_WITH: str(pods)})


@given("racks of two nodes each")
def racks(user: User) -> None:
    names = sorted(node["metadata"]["name"] for node in user.get("/v1/nodes")["items"])
    user.racks = {f"rack-{at // 2}": names[at : at + 2] for at in range(0, len(names), 2)}
    made = [
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": rack},
            "spec": {
                "tier": 1,
                "tierName": "rack",
                "members": [
                    {"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in nodes
                ],
            },
        }
        for rack, nodes in user.racks.items()
    ]
    answer = user.http.post("/v1/apply", json={"objects": made})
    assert answer.status_code == 200, answer.text


@given(
    parsers.parse(
        'a job "{name}" in queue "{where}" with {pods:d} pods of 1 CPU '
        "that all must run in one rack"
    )
)
def a_topology_gang(user: User, name: str, where: str, pods: int) -> None:
    a_gang(user, name, where, pods)
    topology = {"mode": "hard", "highestTierName": "rack"}
    user.jobs[name]["spec"]["networkTopology"] = topology


@given(
    parsers.parse(
        'a job "{name}" in queue "{where}" with {pods:d} pods of 1 CPU that exit with {code}'
    )
)
def a_failing_job(user: User, name: str, where: str, pods: int, code: str) -> None:
    user.jobs[name] = job(name, where, pods, pods, **{keys.EXIT_CODE: code})


@given(
    parsers.parse(
        'a job "{name}" in queue "{where}" with {pods:d} pods of 1 CPU '
        "that run for {seconds} seconds"
    )
)
def a_long_job(user: User, name: str, where: str, pods: int, seconds: str) -> None:
    user.jobs[name] = job(name, where, pods, pods, **{keys.RUN_SECONDS: seconds})


@given(parsers.parse('"{name}" also needs {minimum:d} pods at least'))
def needs_more(user: User, name: str, minimum: int) -> None:
    user.jobs[name]["spec"]["minAvailable"] = minimum


@given(parsers.parse('a manifest with a queue "{where}" and a job "{name}" in it'))
def a_manifest(user: User, where: str, name: str) -> None:
    user.manifest = [queue(where), job(name, where, 2, 2)]


@when(parsers.parse('"{name}" is submitted'))
def submitted(user: User, name: str) -> None:
    user.answer = user.http.post("/v1/namespaces/default/jobs", json=user.jobs[name])


@when("the manifest is applied")
@when("the manifest is applied again")
def applied(user: User) -> None:
    user.answer = user.http.post("/v1/apply", json={"objects": user.manifest})
    assert user.answer.status_code == 200, user.answer.text


@when(parsers.parse('"{name}" is deleted'))
def deleted(user: User, name: str) -> None:
    user.http.delete(f"/v1/namespaces/default/jobs/{name}").raise_for_status()


@then(parsers.parse('"{name}" comes to {phase}'))
def comes_to(user: User, name: str, phase: str) -> None:
    if user.answer is not None:
        assert user.answer.is_success, user.answer.text

    def seen() -> str:
        state: str = user.job(name).get("status", {}).get("state", {}).get("phase", "")
        return state

    user.until(seen, lambda now: now == phase)


@then(parsers.parse('all {pods:d} pods of "{name}" ran at the same time'))
def ran_together(user: User, pods: int, name: str) -> None:
    """Its pods start their work when all of them run, so a pod that is late or missing would have
    prevented the end of the job.
    """
    found = user.pods(name)
    assert len(found) == pods
    assert {pod["status"]["phase"] for pod in found} == {"Succeeded"}
    assert all(pod["spec"]["nodeName"] for pod in found)


@then(parsers.parse('all pods of "{name}" ran in one rack'))
def ran_in_one_rack(user: User, name: str) -> None:
    nodes = {pod["spec"]["nodeName"] for pod in user.pods(name)}
    assert any(nodes <= set(rack) for rack in user.racks.values()), nodes


@then(parsers.parse('"{name}" was never retried'))
def never_retried(user: User, name: str) -> None:
    assert user.job(name)["status"].get("retryCount", 0) == 0


@then(parsers.parse('no pod of "{name}" gets a node'))
def no_node(user: User, name: str) -> None:
    deadline = time.monotonic() + SETTLED_S
    while time.monotonic() < deadline:
        assert not any(pod["spec"].get("nodeName") for pod in user.pods(name))
        time.sleep(polling.POLL_EVERY_S)


@then(parsers.parse('the explanation of "{name}" names "{word}"'))
def explained(user: User, name: str, word: str) -> None:
    path = f"/v1/namespaces/default/jobs/{name}/explanation"
    user.until(lambda: user.get(path), lambda now: word in str(now.get("explained")))


@then(parsers.parse('nothing of "{name}" is left'))
def nothing_left(user: User, name: str) -> None:
    def left() -> list[str]:
        jobs = user.get("/v1/namespaces/default/jobs")["items"]
        groups = user.get("/v1/podgroups")["items"]
        names = [item["metadata"]["name"] for item in (*jobs, *groups)]
        return [found for found in names if found == name or found.startswith(f"{name}-")]

    user.until(left, lambda now: now == [])


@then(parsers.parse('"{name}" counts {count:d} failed pods'))
def counts_failed(user: User, name: str, count: int) -> None:
    assert user.job(name)["status"]["failed"] == count


@then(parsers.parse("the room is free for {pods:d} pods of 1 CPU"))
def room_is_free(user: User, pods: int) -> None:
    user.jobs["again"] = job("again", "default", pods, pods)
    submitted(user, "again")
    comes_to(user, "again", "Completed")


@then("nothing changed")
def nothing_changed(user: User) -> None:
    assert user.answer is not None
    assert {item["result"] for item in user.answer.json()} == {"unchanged"}


@then(parsers.parse('it is refused for "{first}" and "{second}"'))
def refused(user: User, first: str, second: str) -> None:
    assert user.answer is not None
    assert user.answer.status_code == 422
    assert {item["path"] for item in user.answer.json()["violations"]} == {first, second}


@then(parsers.parse('the way of "{name}" was {phases}'))
def phases_were(user: User, name: str, phases: str) -> None:
    conditions = user.job(name)["status"]["conditions"]
    assert ", ".join(condition["status"] for condition in conditions) == phases
