"""The settings of the service that decisions depend on."""

import msgspec

from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration

DEFAULT_CONFIGURATION = config_reader.read_configuration(
    config_reader.DEFAULT, actions.NAMES, plugins.NAMES
)
"""The configuration without a file: the default of Volcano's chart."""
EVICTING_ACTIONS = frozenset({"preempt", "reclaim", "gangpreempt", "gangreclaim", "shuffle"})
"""Actions that evict pods."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that sessions depend on. ``scheduler_names``: only pods with one of these
    schedulerNames are scheduled. ``max_in_flight``: the number of binds and evictions that may be
    in flight, or more if the controller executes more within 2 s."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    configured: configuration.Configuration = DEFAULT_CONFIGURATION
    max_in_flight: int = 2000
    """The binds that an API server executes in two seconds (1,000 to 1,400 binds/s). With a higher
    limit, the cache that decisions are based on would be outdated when they are executed."""
