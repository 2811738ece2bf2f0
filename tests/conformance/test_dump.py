"""What ``strom cluster dump`` keeps of a cluster is enough to decide alike."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.scheduler.core import simulate
from stromboli.shared.api import scheduling_view
from stromboli.testkit import builders
from tests.conformance import test_scheduler as recorded

KINDS = {kind.kind: kind for kind in scheduling_view.SCHEDULING_KINDS}


def reduced(each: dict[str, Any]) -> dict[str, Any]:
    """As the dump has it; kinds that are not in it stay."""
    kind = KINDS.get(each["kind"])
    return scheduling_view.reduce_manifest(kind, msgspec.json.encode(each)) if kind else each


@pytest.mark.parametrize("path", list(recorded.cases()), ids=lambda path: path.stem)
def test_a_session_over_a_dump_decides_as_over_the_cluster(path: Path) -> None:
    """Every decision, phase and explanation, in all recorded cases."""
    case = msgspec.json.decode(path.read_bytes())
    less = {**case, "objects": [reduced(each) for each in case["objects"]]}
    whole = simulate.simulate(msgspec.json.encode(case))
    assert simulate.simulate(msgspec.json.encode(less)) == whole


@pytest.mark.parametrize("lock", ["gpu", "hamivgpu"])
def test_a_dump_keeps_the_locks_of_nodes(lock: str) -> None:
    """With deviceshare.NodeLockEnable a locked node takes no pod that shares a GPU."""
    annotations = {lock: builders.NOON.isoformat(), "example.com/x": "private"}
    node = {"kind": "Node", "metadata": {"name": "n1", "annotations": annotations}}
    less = reduced(node)
    assert less["metadata"]["annotations"] == {lock: builders.NOON.isoformat()}
