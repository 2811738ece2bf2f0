"""No agent fills the log: what a node publishes is limited, with a burst."""

from hypothesis import given
from hypothesis import strategies as st

from stromboli.monitor.core.report_budgets import TRIM_FROM, ReportBudgets


def test_a_node_waits_once_its_burst_is_spent_and_no_other_node_does() -> None:
    budgets = ReportBudgets(bytes_per_s=10, burst_bytes=100)
    budgets.spend("n1", 100, 0.0)
    assert budgets.wait_s("n1", 0.0) == 0
    budgets.spend("n1", 50, 0.0)
    assert (budgets.wait_s("n1", 0.0), budgets.wait_s("n2", 0.0)) == (5.0, 0.0)
    assert budgets.wait_s("n1", 5.0) == 0
    budgets.spend("n1", 10, 5.0)
    assert budgets.wait_s("n1", 5.0) == 1.0


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 20)), max_size=50))
def test_no_node_publishes_more_than_its_rate_a_burst_and_one_report(
    steps: list[tuple[int, float]],
) -> None:
    budgets, now_s, published = ReportBudgets(bytes_per_s=10, burst_bytes=100), 0.0, 0
    for size, pause_s in steps:
        now_s += pause_s
        if not budgets.wait_s("n1", now_s):
            budgets.spend("n1", size, now_s)
            published += size
        assert published <= 100 + 300 + 10 * now_s + 1e-6


def test_nodes_with_a_full_budget_take_no_memory() -> None:
    budgets = ReportBudgets(bytes_per_s=10, burst_bytes=100)
    for number in range(10 * TRIM_FROM):
        budgets.spend(f"n{number}", 10, float(number))
    assert len(budgets) <= TRIM_FROM + 1
