"""What the service decides by, besides what it sees."""

import msgspec

from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration

DEFAULT_CONFIGURATION = config_reader.read_configuration(
    config_reader.DEFAULT, actions.NAMES, plugins.NAMES
)
"""What a cluster runs that says nothing: the field's own default."""
EVICTING_ACTIONS = frozenset({"preempt", "reclaim", "gangpreempt", "gangreclaim", "shuffle"})
"""Actions that evict."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """``scheduler_names``: whose pods we act on. ``max_unanswered``: binds and evictions that may
    be in flight; more, if the controller is measured to carry out more in two seconds."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    configured: configuration.Configuration = DEFAULT_CONFIGURATION
    max_in_flight: int = 2000
    """Two seconds of what the API server takes (1,000 to 1,400 binds/s): decisions that outrun
    their execution are decided on a cache that is old by the time they act."""
