"""The state of the system's services, as the log shows it."""

import msgspec

from stromboli.shared.decoding import Instant


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic. ``writer``: the service that appends to it. ``end``: the offset after its newest
    record; ``last_at`` and ``last_type``: the time and type of that record. ``lag``: how many
    offsets the server that answers is behind the end; None for a topic that it does not read."""

    name: str
    writer: str
    end: int = 0
    last_at: Instant | None = None
    last_type: str = ""
    lag: int | None = None


class LeaderStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The leader of a service, by its lease in the log or in the cluster. ``holder``: empty if the
    lease was released. ``is_expired``: the lease was not renewed within its duration, by the clock
    of the server that answers."""

    service: str
    holder: str
    duration_s: float
    renewed_at: Instant
    is_expired: bool


class DeadLetterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The newest record that could not be processed: its topic, offset and key, the service that
    reported it, and why."""

    topic: str
    offset: int
    key: str
    reported_by: str
    reason: str
    at: Instant


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The durations of the scheduler's newest sessions at ``at``: the 50th and 99th percentile, in
    seconds, of ``sessions`` sessions."""

    at: Instant
    sessions: int
    p50_s: float
    p99_s: float


class SystemHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the system at a time. ``problems`` and ``warnings``: facts about the server that
    answers. ``leaders``: the leaders of services that have a lease; a service with a single replica
    may have none. ``sessions``: None before the first session. ``dead_letters``: the number of
    records that were reported since the topic was created."""

    at: Instant
    problems: dict[str, str] = {}
    warnings: dict[str, str] = {}
    topics: tuple[TopicStatus, ...] = ()
    leaders: tuple[LeaderStatus, ...] = ()
    sessions: SessionStatus | None = None
    dead_letters: int = 0
    last_dead_letter: DeadLetterStatus | None = None
