"""Applies the reports of agents and caches on nodes, and the records of wanted data sets.

A report that cannot be decoded removes the previous report of the node: its state is unknown.
"""

import msgspec

from stromboli.scheduler.core.cache.data_sets import wanted_data
from stromboli.scheduler.core.cluster import auxiliary_objects
from stromboli.shared import envelope, topics
from stromboli.shared.messages import data, node_topology, node_usage

TOPICS = (topics.TOPOLOGY, topics.DATA, topics.DATA_WANTED, topics.USAGE)


def put(
    around: auxiliary_objects.AuxiliaryObjects,
    wanted: wanted_data.WantedData,
    record: envelope.Record,
    message: msgspec.Struct | None,
) -> bool:
    """Apply a record; a record of another topic changes nothing. Returns whether decisions about
    waiting gangs may change."""
    match record.topic:
        case topics.TOPOLOGY:
            around.hardware.pop(record.key, None)
            if isinstance(message, node_topology.TopologyObserved):
                around.hardware[record.key] = message
            return True
        case topics.DATA:
            report = message if isinstance(message, data.DataObserved) else None
            return around.data_copies.put(record.key, report)
        case topics.USAGE:
            # Loads only affect scores: no pod waits for a change of them.
            around.put_usage(
                record.key, message if isinstance(message, node_usage.UsageObserved) else None
            )
            return False
        case topics.DATA_WANTED:
            wanted.record(record.key, message)
            return False
        case _:
            return False
