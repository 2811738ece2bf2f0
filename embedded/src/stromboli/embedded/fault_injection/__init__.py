"""Log and cluster as bad days make them: late, repeated, out of order across topics, cut off.

Wrappers over both ports, so that the embedded system cannot hide races that real parts have.
What they do is allowed by the ports: whoever breaks under them breaks one day without them. The
seed decides which call and which stream meets which trouble; what is read in one go depends on
when it came, as it does without them.
"""

from stromboli.embedded.fault_injection.bus import FaultyBus
from stromboli.embedded.fault_injection.cluster import FaultyCluster
from stromboli.embedded.fault_injection.faults import FaultRates

__all__ = ["FaultRates", "FaultyBus", "FaultyCluster"]
