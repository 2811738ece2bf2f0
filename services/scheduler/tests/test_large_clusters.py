"""What a session costs in a large cluster: counted in instructions, not timed.

NumPy's loops over nodes are not counted, so that a loop of Python's over them is.
"""

import json
import subprocess
import sys
from pathlib import Path

from services.scheduler.tests.support import session_costs

ROOT = Path(__file__).parents[3]


def costs(case: str, *sizes: int) -> list[int]:
    """The instructions of a case by size (``session_costs``)."""
    command = [sys.executable, "-m", session_costs.__name__, case, *map(str, sizes)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found: list[int] = json.loads(done.stdout)
    return found


def test_a_gang_costs_the_same_among_ten_thousand_nodes_as_among_two_thousand() -> None:
    small, large = costs("nodes", 2_000, 10_000)
    assert large < 1.1 * small


def test_a_gang_costs_a_few_instructions_for_each_queue() -> None:
    """Only what depends on all queues, their fair shares, is computed for each of them."""
    few, many = costs("queues", 10, 1_000)
    assert (many - few) / 990 < 250


def test_gangs_of_many_queues_cost_little_more_than_gangs_of_few() -> None:
    """Turns are taken from a heap: no turn looks at all queues."""
    few, many = costs("gangs-in-queues", 10, 200)
    assert many < 2 * few
