"""Orders by age, remaining service and attained service equal a reference model, and end."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.tests import simulations
from embedded.tests.oracle import service_orders
from embedded.tests.simulations import SECOND, Simulated
from stromboli.embedded.simulation.core import workload
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.testkit.strategies import depth

INSTANCES = 20
"""Random instances of each rule; with ``STROM_DEPTH=50``, as in ``make properties``, a thousand."""


def configured(rules: service_orders.Rules) -> configuration.Configuration:
    """The scheduler's configuration of these rules."""
    arguments: Mapping[str, Any] = {"waits-at-most": f"{rules.longest_wait_s}s"}
    if rules.order == "remaining":
        more = {"default-run-time": f"{rules.default_run_s}s"}
        first = [{"name": "shortest-remaining-service", "arguments": {**arguments, **more}}]
    elif rules.order == "attained":
        levels = ", ".join(f"{each}s" for each in rules.thresholds_s)
        more = {"resource": "cpu", "thresholds": levels}
        first = [{"name": "least-attained-service", "arguments": {**arguments, **more}}]
    else:
        first = []
    rest = [{"name": "gang", "enablePreemptable": False}, {"name": "predicates"}]
    document = {
        "actions": "allocate, preempt" if rules.evicts else "allocate",
        "tiers": [{"plugins": [*first, *rest]}],
    }
    return config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)


def simulated(
    gangs: Sequence[service_orders.Gang], nodes: int, rules: service_orders.Rules
) -> Simulated:
    """The same gangs in virtual time."""
    jobs = [
        msgspec.structs.replace(
            simulations.job(each.name, each.submit_s, each.run_s, each.tasks),
            estimate_us=(each.estimate_s or 0) * SECOND,
        )
        for each in sorted(gangs, key=lambda each: each.submit_s)
    ]
    options = workload.Options(configured=configured(rules), keeps_progress=rules.keeps)
    return Simulated(simulations.nodes(nodes), jobs, options)


def gangs_of(draw: random.Random, nodes: int, *, states: bool) -> list[service_orders.Gang]:
    """Up to eight gangs that fit; ``states``: half of them with an estimate, right or wrong."""
    return [
        service_orders.Gang(
            f"j{at:02}",
            draw.randint(0, 12),
            draw.choice([1, 2, 3, 5, 8, 13, 21]),
            draw.randint(1, nodes),
            draw.randint(1, 20) if states and draw.random() < 0.5 else None,
        )
        for at in range(draw.randint(1, 8))
    ]


def rules_of(name: str, draw: random.Random) -> service_orders.Rules:
    longest_wait_s = draw.choice([7, 25, 10_000])
    if name in ("remaining, known", "remaining, unknown"):
        return service_orders.Rules("remaining", longest_wait_s, draw.choice([3, 10]))
    if name == "age":
        return service_orders.Rules("age", longest_wait_s)
    thresholds = draw.choice([(12,), (12, 24), (12, 36)])
    return service_orders.Rules(
        "attained",
        longest_wait_s,
        thresholds_s=thresholds,
        evicts=name != "attained, order alone",
        keeps=name == "attained, progress kept",
    )


NAMES = (
    "age",
    "remaining, known",
    "remaining, unknown",
    "attained, order alone",
    "attained, progress kept",
    "attained, progress lost",
)


@pytest.mark.parametrize("name", NAMES)
def test_every_completion_time_equals_that_of_the_reference_model(name: str) -> None:
    """And so do the mean completion time and the number of evictions."""
    evictions = 0
    for instance in range(INSTANCES * depth.FACTOR):
        draw = random.Random(f"{name} {instance}")
        nodes = draw.randint(1, 4)
        gangs = gangs_of(draw, nodes, states=name == "remaining, known")
        rules = rules_of(name, draw)
        found, model = simulated(gangs, nodes, rules), service_orders.Model(gangs, nodes, rules)
        where = f"{name} {instance}: {nodes} nodes, {rules}, {gangs}"
        assert found.starts_s == model.starts_s, where
        assert found.ends_s == model.ends_s, where
        assert sum(run.evictions for run in found.finished.values()) == model.evictions, where
        evictions += model.evictions
    assert (evictions > 0) == name.startswith("attained, progress")


@depth.examples(5)
@given(st.integers(0, 2**32), st.booleans())
def test_every_job_ends_though_evictions_lose_its_work(seed: int, keeps: bool) -> None:
    """While others arrive that have used less. A job that waited for the limit runs to its end, so
    it is evicted no more than once for each wait that is shorter."""
    draw = random.Random(seed)
    nodes = draw.randint(1, 3)
    stream = [service_orders.Gang(f"s{at:03}", 5 * at, 4, nodes) for at in range(20)]
    gangs = [*gangs_of(draw, nodes, states=False), *stream]
    rules = service_orders.Rules("attained", 40, thresholds_s=(12, 24), evicts=True, keeps=keeps)
    found = simulated(gangs, nodes, rules)
    assert found.ends_s.keys() == {each.name for each in gangs}
    assert not found.kernel.stopped
