"""Leader election: one replica holds a lease and renews it; the others are standbys."""

from stromboli.shared.leader_election.elector import (
    LeaderElector,
    Leadership,
    Lease,
    SingleReplica,
    Term,
    identity,
    serve_in_terms,
)
from stromboli.shared.leader_election.settings import LeaseSettings

__all__ = [
    "LeaderElector",
    "Leadership",
    "Lease",
    "LeaseSettings",
    "SingleReplica",
    "Term",
    "identity",
    "serve_in_terms",
]
