"""Who of several replicas acts: one holds a lease and renews it, the others stand by.

``core`` decides, ``keeping`` has the one loop around it and a service's terms, ``on_cluster`` and
``on_log`` are the two places where a lease can stand.
"""

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
