"""Opening a session: the model is built from a cluster's objects."""

from stromboli.scheduler.core.framework import cluster, configuration, session


def open_session(
    configured: configuration.Configuration, given: cluster.Cluster
) -> session.Session:
    """A session with all plugins open; close it with ``Session.close``."""
    raise NotImplementedError
