"""Fault injection for log and cluster: delays, duplicates, reordering across topics, disconnects.

The wrappers keep the contracts of both ports: a service that fails with them would also fail with
real Kafka and Kubernetes. The seed determines which call and which stream has which fault; how many
records one read returns depends on timing, as it does without the wrappers.
"""

from stromboli.embedded.fault_injection.bus import FaultyBus
from stromboli.embedded.fault_injection.cluster import FaultyCluster
from stromboli.embedded.fault_injection.faults import FaultRates

__all__ = ["FaultRates", "FaultyBus", "FaultyCluster"]
