"""Whatever the cluster: a whole session decides as the slow, obvious one does."""

from hypothesis import assume, given

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.shared.api import meta
from stromboli.testkit.oracle import session
from stromboli.testkit.strategies import depth, session_clusters

TIERS = [
    [sessions.plugin(name) for name in ("priority", "gang", "conformance")],
    [
        sessions.plugin(name)
        for name in ("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack")
    ],
]


@depth.examples(100)
@given(session_clusters.clusters())
def test_a_session_decides_as_the_obvious_one_does(objects: list[meta.Object]) -> None:
    """Who passes the doors, who gets which node, and in which order."""
    configured = sessions.configured(*TIERS, run="enqueue, allocate, backfill")
    closed = simulate.run(configured, sessions.given(objects))
    expected = session.decide(objects)
    assume(not expected.packs)
    inside = {key for key, job in closed.jobs.items() if not job.is_pending}
    assert inside == expected.inside
    assert list(closed.decisions.binds.items()) == list(expected.binds.items())
