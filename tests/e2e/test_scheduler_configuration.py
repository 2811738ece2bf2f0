"""The scheduler's configuration file in a running system: a change applies to the next decision."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments: {leastrequested.weight: %d, mostrequested.weight: %d}
"""
SPREAD = TIERS % (10, 0)
PACK = TIERS.replace("weight: %d}", "weight: %d, seen: 1}") % (0, 10)
"""``seen`` is unknown and is reported when the file is in force."""


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[cells.ConfiguredSystem]:
    async with cells.running(tmp_path, "enqueue", SPREAD) as configured_system:
        yield configured_system


async def test_a_change_of_actions_and_arguments_applies_to_the_next_session(
    cell: cells.ConfiguredSystem,
) -> None:
    """Without allocate, pods are created and stay pending. With it they are spread over the nodes,
    and after a change of weights the next job is packed onto one node.
    """
    await cell.submit("first", 4)
    waiting = await cell.until(lambda: cell.pods("first"), lambda found: len(found) == 4)
    assert not any(pod["spec"].get("nodeName") for pod in waiting)
    cell.configure("enqueue, allocate", SPREAD)
    assert len(await cell.nodes_of("first", 4)) == 2
    cell.configure("enqueue, allocate", PACK)
    await cell.until(cell.warnings, lambda reported: "seen" in reported)
    await cell.submit("second", 4)
    assert len(await cell.nodes_of("second", 4)) == 1


async def test_an_invalid_file_is_reported_with_its_line_and_the_last_valid_one_stays_in_force(
    cell: cells.ConfiguredSystem,
) -> None:
    cell.configure("enqueue, allocate", SPREAD)
    await cell.submit("first", 2)
    await cell.nodes_of("first", 2)
    cell.configure("enqueue, alocate", SPREAD)
    reported = await cell.until(cell.warnings, lambda reported: "configuration" in reported)
    assert "the previous one stays in use" in reported
    assert "scheduler.yaml:1: actions: 'alocate' is not a known action" in reported
    await cell.submit("second", 2)
    assert await cell.nodes_of("second", 2)
    cell.configure("enqueue, allocate", SPREAD)
    await cell.until(cell.warnings, lambda reported: "configuration" not in reported)
