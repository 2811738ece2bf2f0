"""The scheduler agrees with recorded sessions of Volcano with known outcomes.

The cases are outside the repository, in the folder STROM_SHARED (default: ``shared`` beside the
repository). Without them the tests are skipped with this reason.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.scheduler.core import simulate
from stromboli.shared import decoding
from tests.conformance import recorded_deviations

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("STROM_SHARED", ROOT.parent / "shared"))
CASES = SHARED / "conformance" / "scheduler"
CASES_RECORDED = {"core": 59, "topology": 35, "sharding": 4, "dra": 4}


class Check(msgspec.Struct, frozen=True, rename="camel"):
    bind_count_only: bool = False
    bind_counts_per_hyper_node: list[int] | None = None


class Case(msgspec.Struct, rename="camel"):
    name: str
    needs: str
    objects: list[dict[str, Any]]
    decisions: dict[str, Any]
    check: Check = Check()
    hyper_node_nodes: dict[str, list[str]] | None = None
    hyper_node_tiers: dict[str, list[str]] | None = None

    def of_gangs(self, phases: Mapping[str, str]) -> dict[str, str]:
        """Phases of PodGroups with a minimum; of others, the recorded one is not to be copied."""
        gangs = {
            f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}"
            for each in self.objects
            if each["kind"] == "PodGroup" and each["spec"].get("minMember", 0) > 0
        }
        return {key: phase for key, phase in phases.items() if key in gangs}

    def per_leaf(self, binds: Mapping[str, str]) -> list[int]:
        """Binds on each HyperNode of the lowest tier that got any, ascending."""
        tiers = self.hyper_node_tiers or {}
        leaves = tiers[min(tiers, key=int)] if tiers else []
        nodes = self.hyper_node_nodes or {}
        counts = [sum(node in nodes[leaf] for node in binds.values()) for leaf in leaves]
        return sorted(count for count in counts if count)


def cases() -> dict[Path, str]:
    """The recorded cases that are compared, and what each needs."""
    decoder = decoding.decoder_of(Case)
    needs = {path: decoder.decode(path.read_bytes()).needs for path in sorted(CASES.glob("*.json"))}
    return {path: need for path, need in needs.items() if need in CASES_RECORDED}


def compared(case: Case, outcome: simulate.Outcome) -> Iterator[tuple[str, object, object]]:
    """Volcano's and Stromboli's outcome for one field."""
    theirs = case.decisions
    if case.check.bind_count_only:
        yield "binds", len(outcome.binds), len(theirs["binds"])
    else:
        yield "binds", dict(outcome.binds), theirs["binds"]
    expected = case.check.bind_counts_per_hyper_node
    if expected is not None:
        yield "bindCountsPerHyperNode", case.per_leaf(outcome.binds), sorted(expected)
    yield "evictions", sorted(outcome.evictions), sorted(theirs["evictions"])
    yield "pipelined", _plain(outcome.pipelined), theirs["pipelined"]
    yield (
        "podGroupPhases",
        case.of_gangs(outcome.pod_group_phases),
        case.of_gangs(theirs["podGroupPhases"]),
    )
    yield "taskStatusCounts", _plain(outcome.task_status_counts), theirs["taskStatusCounts"]


def _plain(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: dict(value) for key, value in nested.items()}


def test_the_cases_are_all_there() -> None:
    """As many cases of each kind are compared as were recorded."""
    if not CASES.is_dir():
        pytest.skip(f"no recorded cases in {CASES}; STROM_SHARED names their folder")
    found = Counter(cases().values())
    assert all(found[need] >= count for need, count in CASES_RECORDED.items())


@pytest.mark.parametrize("path", cases(), ids=lambda path: path.stem)
def test_a_session_decides_as_recorded(path: Path) -> None:
    """Binds, evictions, promises, phases and counts agree, but for listed deviations."""
    raw = path.read_bytes()
    case = decoding.from_json(raw, Case)
    known = [
        each for name, each in recorded_deviations.DEVIATIONS.items() if path.stem.startswith(name)
    ]
    left_out = frozenset().union(*(each.fields for each in known))
    fields = [each for each in compared(case, simulate.simulate(raw)) if each[0] not in left_out]
    ours = {field: mine for field, mine, _ in fields}
    theirs = {field: recorded for field, _, recorded in fields}
    assert ours == theirs


def test_every_deviation_is_of_a_case_and_they_are_few() -> None:
    """A deviation of an unknown case, or a fourth one, is an error in Stromboli."""
    if not CASES.is_dir():
        pytest.skip(f"no recorded cases in {CASES}; STROM_SHARED names their folder")
    names = [path.stem for path in cases()]
    for known in recorded_deviations.DEVIATIONS:
        assert any(name.startswith(known) for name in names)
    assert len(recorded_deviations.DEVIATIONS) <= 3
