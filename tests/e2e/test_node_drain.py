"""``strom node drain`` on a running system: jobs continue elsewhere, as their policies say."""

from collections.abc import Iterator

import pytest

from tests.e2e.support import rest_user

LONG_S = rest_user.LONG_S


@pytest.fixture
def user(base_url: str) -> Iterator[rest_user.User]:
    made = rest_user.User(base_url)
    yield made
    made.close()


def node_of(user: rest_user.User, job: str) -> str:
    """The node of the job's only pod once it runs."""

    def place() -> str:
        found = [pod for pod in user.pods(job) if pod["status"].get("phase") == "Running"]
        return found[0]["spec"]["nodeName"] if found else ""

    return str(user.until(place, bool))


def test_a_drained_job_runs_on_another_node(user: rest_user.User) -> None:
    user.submit(rest_user.job("to-move", LONG_S))
    before = node_of(user, "to-move")
    try:
        drained = user.strom("node", "drain", before, "--grace-period", "1", "--timeout", "2m")
        assert f"node/{before} drained" in drained
        assert node_of(user, "to-move") != before
    finally:
        user.strom("node", "uncordon", before)
        user.delete("to-move")


def test_a_drain_is_the_event_pod_evicted_for_policies(user: rest_user.User) -> None:
    policies = [{"event": "PodEvicted", "action": "AbortJob"}]
    user.submit(rest_user.job("to-abort", LONG_S, policies=policies))
    node = node_of(user, "to-abort")
    try:
        user.strom("node", "drain", node, "--grace-period", "1", "--timeout", "2m")
        user.comes_to("to-abort", "Aborted")
    finally:
        user.strom("node", "uncordon", node)
        user.delete("to-abort")
