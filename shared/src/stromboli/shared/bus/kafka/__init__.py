"""The Kafka adapter of the bus.

::

    KafkaBus ── layout   creates the topics, compares those that are there
        ├── writer       one idempotent producer per writer; rebuilt when it fails for good
        ├── reader       one consumer per fold or work: barrier, retention, fencing
        └── work         commits the lowest unfinished offset of a group
    clients              what all of them share: connections, errors, an end in bounded time

Every topic is read and written in its partition 0 alone. Readers wait out a broker that is away
and go on where they were; calls that answer (``append``, ``last``, ``open_writer``) raise
UnavailableError after a time instead.
"""

from stromboli.shared.bus.kafka.bus import KafkaBus
from stromboli.shared.bus.kafka.settings import KafkaSettings

__all__ = ["KafkaBus", "KafkaSettings"]
