"""No agent fills the log: what a node publishes is limited, with a burst."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.monitor.tests import active_terms
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.monitor import agent_receiver
from stromboli.monitor.core import report_budgets
from stromboli.monitor.core.report_budgets import ReportBudgets
from stromboli.monitor.settings import MonitorSettings
from stromboli.shared import envelope
from stromboli.shared.messages import base, node_topology
from stromboli.testkit import builders

MOST_REMEMBERED = 1_000


def test_a_node_waits_once_its_burst_is_spent_and_no_other_node_does() -> None:
    budgets = ReportBudgets(bytes_per_s=10, burst_bytes=100, least_bytes=0)
    budgets.spend("n1", 100, 0.0)
    assert budgets.wait_s("n1", 0.0) == 0
    budgets.spend("n1", 50, 0.0)
    assert (budgets.wait_s("n1", 0.0), budgets.wait_s("n2", 0.0)) == (5.0, 0.0)
    assert budgets.wait_s("n1", 5.0) == 0
    budgets.spend("n1", 10, 5.0)
    assert budgets.wait_s("n1", 5.0) == 1.0


def test_small_reports_are_limited_by_their_number() -> None:
    budgets = ReportBudgets(bytes_per_s=10, burst_bytes=100, least_bytes=20)
    for _ in range(6):
        assert budgets.wait_s("n1", 0.0) == 0
        budgets.spend("n1", 1, 0.0)
    assert budgets.wait_s("n1", 0.0) == 2.0


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 20)), max_size=50))
def test_no_node_publishes_more_than_its_rate_a_burst_and_one_report(
    steps: list[tuple[int, float]],
) -> None:
    budgets, now_s, published = (
        ReportBudgets(bytes_per_s=10, burst_bytes=100, least_bytes=0),
        0.0,
        0,
    )
    for size, pause_s in steps:
        now_s += pause_s
        if not budgets.wait_s("n1", now_s):
            budgets.spend("n1", size, now_s)
            published += size
        assert published <= 100 + 300 + 10 * now_s + 1e-6


def test_nodes_with_a_full_budget_take_no_memory() -> None:
    budgets = ReportBudgets(bytes_per_s=10, burst_bytes=100, least_bytes=0)
    for number in range(10 * MOST_REMEMBERED):
        budgets.spend(f"n{number}", 10, float(number))
    assert len(budgets) <= MOST_REMEMBERED + 1


async def test_an_agent_that_publishes_too_much_waits_and_repeats_its_report(
    tmp_path: Path,
) -> None:
    """A compromised agent could otherwise fill the disks of the brokers with its reports."""
    now_s, published = 0.0, list[envelope.Draft | None]()
    receiver = agent_receiver.AgentReceiver(
        MonitorSettings(),
        None,
        EmbeddedCluster(tmp_path / "cluster.db"),
        lambda: builders.NOON,
        lambda: now_s,
        budgets=report_budgets.ReportBudgets(bytes_per_s=1, burst_bytes=100, least_bytes=0),
    )
    one, other = (
        base.encode(node_topology.NodeTopology(offline_cpus=cpus * 50)) for cpus in ("1", "2")
    )
    with receiver.open(active_terms.publishing_to(published)):
        receiver.report("n1", one)
        for _ in range(100):
            receiver.report("n1", one)  # unchanged: it is not published
        receiver.report("n1", other)
        with pytest.raises(agent_receiver.ReportRejectedError, match="reports too much") as refused:
            receiver.report("n1", one)
        assert refused.value.status == 429
        with pytest.raises(agent_receiver.ReportRejectedError):
            receiver.exchange_data("n1", b"{}")
        receiver.report("n2", one)
        now_s = 1000.0
        receiver.report("n1", one)
    assert [it.key for it in published if it is not None] == ["n1", "n1", "n2", "n1"]
