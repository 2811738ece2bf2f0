"""Who of several replicas acts: one holds a lease and renews it, the others stand by.

``core`` decides, ``keeping`` has the one loop around it and a service's terms, ``on_cluster`` and
``on_log`` are the two places where a lease can stand.
"""

from stromboli.shared.leases.keeping import (
    Alone,
    Keeper,
    Lead,
    Lease,
    ReplacedError,
    Term,
    identity,
    serve_in_terms,
)
from stromboli.shared.leases.settings import LeaseSettings

__all__ = [
    "Alone",
    "Keeper",
    "Lead",
    "Lease",
    "LeaseSettings",
    "ReplacedError",
    "Term",
    "identity",
    "serve_in_terms",
]
