"""Fault injection for log and cluster: delays, duplicates, reordering across topics, disconnects.

The wrappers stay within the contracts of both ports: a service that fails under them would fail on
real parts sooner or later. The seed decides which call and which stream meets which fault; how many
records one read returns depends on timing, as it does without the wrappers.
"""

from stromboli.embedded.fault_injection.bus import FaultyBus
from stromboli.embedded.fault_injection.cluster import FaultyCluster
from stromboli.embedded.fault_injection.faults import FaultRates

__all__ = ["FaultRates", "FaultyBus", "FaultyCluster"]
