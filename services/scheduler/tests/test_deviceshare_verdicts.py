"""Cached verdicts of the deviceshare plugin."""

from services.scheduler.tests import test_deviceshare
from services.scheduler.tests.support import default_sessions
from stromboli.scheduler.core.framework import interfaces, session
from stromboli.scheduler.core.model import entities, node_views


def test_a_cached_verdict_ends_when_the_owner_of_a_gpu_changes() -> None:
    """A gold pod leaves and a silver pod of the same size arrives: gold fits there again."""
    how = test_deviceshare.tier(GPUExclusiveRules=[{"tier": "gold"}, {"tier": "silver"}])
    pods = {
        name: test_deviceshare.gang(name, test_deviceshare.wants(memory=1), labels={"tier": label})
        for name, label in (("a", "gold"), ("b", "silver"), ("c", "gold"))
    }
    ssn = default_sessions.opened(
        test_deviceshare.vgpu_node("n1", "A,8000"), *pods["a"], *pods["b"], *pods["c"], tier=how
    )
    tasks = {name: next(iter(ssn.jobs[f"default/{name}"].tasks.values())) for name in pods}
    trial = ssn.statement()
    trial.allocate(tasks["a"], "n1")
    assert not fits(ssn, tasks["c"])
    trial.discard()
    other = ssn.statement()
    other.allocate(tasks["b"], "n1")
    assert fits(ssn, tasks["c"])


def fits(ssn: session.Session, task: entities.Task) -> bool:
    """Return whether every predicate passes the only node."""
    view = node_views.NodeView(ssn.nodes, task)
    return all(
        bool(check.passed.all())
        for tests in ssn.functions(interfaces.PREDICATE)
        for test in tests
        for check in test(task, view)
    )
