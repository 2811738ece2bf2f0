"""Who waits for whom."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.jobspec import dependency_cycles
from stromboli.testkit import cpu_time

NAMES = st.sampled_from("abcdef")
NEEDS = st.dictionaries(NAMES, st.lists(NAMES, max_size=4))


def waits_for_ever(needs: Mapping[str, list[str]]) -> frozenset[str]:
    """In rounds: remove jobs that wait for no remaining job."""
    left = dict(needs)
    while free := [name for name, wanted in left.items() if not set(wanted) & left.keys()]:
        for name in free:
            del left[name]
    return frozenset(left)


@given(NEEDS)
def test_the_remaining_jobs_wait_for_each_other(needs: dict[str, list[str]]) -> None:
    assert dependency_cycles.members_of_cycles(needs) == waits_for_ever(needs)


def test_the_cost_of_a_chain_is_linear() -> None:
    """Eight times the links in about eight times the CPU time, not in sixty-four."""

    def lasted_s(links: int) -> float:
        chain = {str(link): (str(link + 1),) for link in range(links)}
        found, cpu_s = cpu_time.measured(lambda: dependency_cycles.members_of_cycles(chain))
        assert found == frozenset()
        return cpu_s

    ratios = (lasted_s(8_000) / lasted_s(1_000) for _ in range(5))
    assert min(ratios) < 30
