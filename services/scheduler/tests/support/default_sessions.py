"""Sessions with the default plugins and the default queue, for rules that depend on neither."""

from typing import Any

import msgspec

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import meta
from stromboli.testkit import builders

TIER: sessions.Tier = [
    sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")
]


def opened(*objects: msgspec.Struct, tier: sessions.Tier = TIER) -> session.Session:
    """An open session with the default queue."""
    return sessions.opened(builders.make_queue(), *objects, tier=tier)


def closed(
    *objects: msgspec.Struct, tier: sessions.Tier = TIER, run: str = "allocate"
) -> session.Session:
    """A session that ran its actions, with the default queue."""
    return simulate.run(
        sessions.configured(tier, run=run), sessions.given([builders.make_queue(), *objects])
    )


def gang(name: str, pods: int, *, min_member: int | None = None, **pod: Any) -> list[meta.Object]:
    """A gang of the default queue that needs all of its pods, unless ``min_member`` is given."""
    least = pods if min_member is None else min_member
    return sessions.gang(name, "default", pods, min_member=least, **pod)


def binds(decided: session.Session) -> dict[str, str]:
    """Pod -> node, without the namespace."""
    return {key.partition("/")[2]: node for key, node in decided.decisions.binds.items()}
