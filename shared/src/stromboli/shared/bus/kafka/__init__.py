"""The Kafka adapter of the bus.

::

    KafkaBus ── topic_provisioning  creates missing topics, compares existing ones
        ├── writer                  one idempotent producer per writer, rebuilt when it fails
        ├── reader                  one consumer per reader: end offsets, retention, fencing
        └── group_consumer          commits the lowest unfinished offset of a group
    clients                         shared: connections, error translation, bounded close

Every topic has one partition in use, partition 0. Readers wait while the broker is unavailable and
continue at their position. Calls that return a result (``append``, ``last_record``,
``open_writer``) raise UnavailableError after a timeout instead.
"""

from stromboli.shared.bus.kafka.bus import KafkaBus
from stromboli.shared.bus.kafka.settings import KafkaSettings

__all__ = ["KafkaBus", "KafkaSettings"]
