"""Questions to the scheduler: when would a pending job start if it were different?

A question is a record of ``scheduling.questions``; the answer, a record of ``scheduling.answers``,
has its key. Every replica reads all answers and ignores those to other replicas.
"""

import asyncio
import uuid
from collections import Counter
from datetime import timedelta

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.messages import what_if as messages
from stromboli.shared.runtime import runtime

WITHIN_S = 60.0
"""Seconds within which the scheduler must answer: a first question also waits some seconds for the
start of a process."""
MOST_AT_ONCE = 8
"""Maximum number of unanswered questions of this replica: each costs the scheduler seconds of
CPU."""
MOST_OF_ONE = 4
"""Maximum number of unanswered questions of one principal, so that other principals can ask,
too."""
_WHAT = "what-if"


class WhatIfs:
    """The questions of this replica that wait for an answer."""

    def __init__(self, clock: runtime.Clock) -> None:
        self._clock = clock
        self._writer: bus_port.Writer | None = None
        self._waiting: dict[str, asyncio.Future[messages.WhatIfAnswered]] = {}
        self._of_principals: Counter[str] = Counter()

    def open(self, writer: bus_port.Writer) -> None:
        """Allow questions from now on; they are appended with this writer."""
        self._writer = writer

    def fold(self, record: envelope.Record) -> None:
        """Apply an answer to one of these questions. Raises UndecodableError."""
        waiting = self._waiting.get(record.key)
        if waiting is None or waiting.done():
            return
        message = envelope.decode(record)
        if isinstance(message, messages.WhatIfAnswered):
            waiting.set_result(message)

    async def ask(
        self,
        pod_group: str,
        present: messages.Gang,
        changed: messages.Gang | None,
        *,
        is_new: bool,
        sizes_change: bool,
        nodes: int,
        principal: str,
    ) -> messages.WhatIfAnswered:
        """Ask the scheduler, and return its answer. ``principal``: the name of the user who asks.
        Raises TransientError if there is no answer in time, RateLimitedError if too many questions
        wait."""
        if self._writer is None:
            raise errors.TransientError(
                _WHAT, "this server has not opened the log yet; ask again", 5.0
            )
        if len(self._waiting) >= MOST_AT_ONCE:
            why = f"{MOST_AT_ONCE} what-if requests wait for the scheduler; ask again"
            raise errors.RateLimitedError(_WHAT, why, 10.0)
        if self._of_principals[principal] >= MOST_OF_ONE:
            why = f"{MOST_OF_ONE} what-if requests of this user wait for the scheduler; ask again"
            raise errors.RateLimitedError(_WHAT, why, 10.0)
        key, now = uuid.uuid4().hex, self._clock()
        message = messages.WhatIfAsked(
            pod_group=pod_group,
            present=present,
            changed=changed,
            is_new=is_new,
            sizes_change=sizes_change,
            nodes=nodes,
            until=now + timedelta(seconds=WITHIN_S),
        )
        self._waiting[key] = asyncio.get_running_loop().create_future()
        self._of_principals[principal] += 1
        try:
            async with asyncio.timeout(WITHIN_S):
                draft = envelope.Draft(topic=topics.QUESTIONS, key=key, message=message, time=now)
                await self._writer.append(draft)
                return await self._waiting[key]
        except TimeoutError:
            why = f"the scheduler has not answered within {WITHIN_S:.0f} s; ask again"
            raise errors.TransientError(_WHAT, why) from None
        finally:
            del self._waiting[key]
            self._of_principals -= Counter((principal,))  # keeps no zeros
