"""The policy of a session. Its digest stands in every session's record."""

import hashlib
from typing import Literal

import msgspec


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide. The defaults are what a cluster runs.

    ``gang`` off binds every pod by itself, without admission to the queue or a minimum: the
    baseline that gangs are compared with. ``job_order`` ``shuffle`` orders by the session's seed.
    """

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    gang: bool = True
    job_order: Literal["priority", "shuffle"] = "priority"
    max_unanswered_binds: int = 2000
    """Two seconds of what the API server takes (1,000 to 1,400 binds/s): decisions that outrun
    their execution are decided on a picture that is old by the time they act."""

    @property
    def digest(self) -> str:
        """Names this configuration in records: 16 hexadecimal digits."""
        encoded = msgspec.json.encode(self, order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:16]
