"""Rules of which pods a quota counts. What an API server does is in the contract of clusters."""

from collections.abc import Mapping

import pytest

from stromboli.shared.api import core
from stromboli.shared.jobspec import quota_scopes


def pod(priority_class: str = "", **fields: str | int) -> core.PodSpec:
    """``cpu``: its request; ``memory``: its limit; ``deadline``: how long it may run."""
    resources = core.ResourceRequirements(
        requests={"cpu": str(fields["cpu"])} if "cpu" in fields else None,
        limits={"memory": str(fields["memory"])} if "memory" in fields else None,
    )
    return core.PodSpec(
        containers=(core.Container(name="c", image="i", resources=resources),),
        active_deadline_seconds=int(fields["deadline"]) if "deadline" in fields else None,
        priority_class_name=priority_class,
    )


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        ("BestEffort", {"nothing": True, "cpu": False, "limit": False, "zero": True}),
        ("NotBestEffort", {"nothing": False, "cpu": True, "limit": True, "zero": False}),
        ("Terminating", {"nothing": False, "deadline": True}),
        ("NotTerminating", {"nothing": True, "deadline": False}),
        ("PriorityClass", {"nothing": False, "high": True}),
        ("NoSuchScope", {"nothing": False}),
    ],
)
def test_a_scope_contains_the_pods_that_an_api_server_counts(
    scope: str, counted: Mapping[str, bool]
) -> None:
    pods = {
        "nothing": pod(),
        "cpu": pod(cpu="1"),
        "zero": pod(cpu="0"),
        "limit": pod(memory="1Gi"),
        "deadline": pod(deadline=60),
        "high": pod("high"),
    }
    scopes = tuple(quota_scopes.of(core.ResourceQuotaSpec(scopes=(scope,))))
    for name, expected in counted.items():
        assert quota_scopes.counts(scopes, quota_scopes.traits(pods[name])) is expected, name


@pytest.mark.parametrize(
    ("operator", "values", "counted"),
    [
        ("In", ("high",), [True, False, False]),
        ("NotIn", ("high",), [False, True, True]),
        ("Exists", (), [True, True, False]),
        ("DoesNotExist", (), [False, False, True]),
    ],
)
def test_priority_classes_are_named_with_an_operator(
    operator: str, values: tuple[str, ...], counted: list[bool]
) -> None:
    one = core.ScopeRequirement(scope_name="PriorityClass", operator=operator, values=values)
    pods = [quota_scopes.traits(pod(name)) for name in ("high", "low", "")]
    assert [quota_scopes.counts([one], each) for each in pods] == counted


def test_all_scopes_must_match_and_no_scope_matches_all_pods() -> None:
    both = quota_scopes.of(core.ResourceQuotaSpec(scopes=("Terminating", "NotBestEffort")))
    scopes = tuple(both)
    assert quota_scopes.counts(scopes, quota_scopes.traits(pod(cpu="1", deadline=1)))
    assert not quota_scopes.counts(scopes, quota_scopes.traits(pod(deadline=1)))
    assert quota_scopes.counts((), quota_scopes.traits(pod()))


def test_the_demand_on_a_quota_is_that_of_its_pods() -> None:
    spec = core.ResourceQuotaSpec(scopes=("NotBestEffort",))
    needs = quota_scopes.needs(spec, [(pod(cpu="2"), 3), (pod(), 5)])
    assert (needs["pods"], needs["requests.cpu"]) == (3, 6000)
    assert quota_scopes.needs(spec, [(pod(), 5)]) == {}
