"""What a pod requires of a node: its request and its constraints."""

import pytest

from stromboli.scheduler.core.model import requirements
from stromboli.shared.api import core
from stromboli.testkit import builders

SIDECAR = builders.make_container("500m", restart_policy="Always")
INIT = builders.make_container("3")
SMALL = builders.make_container("1", "1Gi")


def request(
    *containers: core.Container, init: tuple[core.Container, ...] = (), **others: str
) -> dict[str, int]:
    pod = builders.make_pod(containers=containers, init_containers=init, overhead=others or None)
    return requirements.pod_request(pod.spec)


@pytest.mark.parametrize(
    ("found", "cpu_milli"),
    [
        (request(SMALL, SMALL), 2000),
        (request(SMALL, init=(INIT,)), 3000),
        (request(SMALL, SMALL, SMALL, SMALL, init=(INIT,)), 4000),
        (request(SMALL, init=(SIDECAR,)), 1500),
        (request(SMALL, init=(SIDECAR, INIT)), 3500),
        (request(SMALL, init=(INIT, SIDECAR)), 3000),
        (request(SMALL, cpu="250m"), 1250),
    ],
    ids=[
        "containers add up",
        "an init container runs before them",
        "and is covered by what they take",
        "a sidecar stays",
        "and runs beside later init containers",
        "but not beside earlier ones",
        "overhead is added",
    ],
)
def test_the_request_is_the_most_that_a_pod_uses_at_a_time(
    found: dict[str, int], cpu_milli: int
) -> None:
    assert found["cpu"] == cpu_milli


def test_every_pod_takes_one_of_pods_and_quota_names_are_no_resources() -> None:
    container = builders.make_container("1", extra={"count/jobs": "3", "requests.cpu": "9"})
    assert request(container) == {"cpu": 1000, "pods": 1}


@pytest.mark.parametrize("quantity", ["much", "-1", "9Ei"])
def test_an_invalid_amount_is_reported_with_its_container(quantity: str) -> None:
    with pytest.raises(ValueError, match="container main requests cpu"):
        request(builders.make_container(quantity))


def test_pods_of_one_template_share_their_requirements() -> None:
    interned = requirements.RequirementsIndex()
    first, second = builders.make_pod("p1"), builders.make_pod("p2", labels={"a": "b"})
    assert interned.of(first.spec) is interned.of(second.spec)


def test_equal_requests_in_different_notation_share_requirements() -> None:
    interned = requirements.RequirementsIndex()
    first, second = builders.make_pod(cpu="1"), builders.make_pod(cpu="1000m")
    assert interned.of(first.spec) is interned.of(second.spec)
