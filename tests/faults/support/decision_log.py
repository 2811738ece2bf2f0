"""Which decisions are unanswered now, read from the log by a plain consumer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiokafka

DECISIONS, OUTCOMES = "default.scheduling.decisions", "default.scheduling.outcomes"
DECIDED = "stromboli.scheduling.statement_decided.v1"
WITHIN_S = 90.0


class DecisionLog:
    """Follows decisions and their outcomes from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._changed = asyncio.Event()
        self._namespaces: dict[str, str] = {}
        self.binds: dict[str, list[str]] = {}
        """Decision -> the pods that it binds, in the order of the log: by uid, or by
        ``namespace/name`` if it creates the pod with its node."""
        self._answered_ms: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[DecisionLog]:
        """Follow while inside."""
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            partitions = [aiokafka.TopicPartition(name, 0) for name in (DECISIONS, OUTCOMES)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            task = asyncio.create_task(self._follow(consumer))
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.wait([task])
        finally:
            # The session's loop does not run while other tests run in their loops. A fetch that
            # timed out during that time ends the consumer's own stop with its cancellation.
            stopping = asyncio.create_task(consumer.stop())
            await asyncio.wait([stopping])
            if not stopping.cancelled():
                stopping.result()

    async def _follow(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        async for record in consumer:
            headers = {name: text.decode() for name, text in record.headers}
            if record.topic == OUTCOMES:
                self._answered_ms.setdefault(record.key.decode(), record.timestamp)
            elif headers.get("ce_type") == DECIDED:
                decided = json.loads(record.value)
                binds = [
                    it.get("uid") or f"{it['namespace']}/{it['pod']}"
                    for it in decided.get("binds") or ()
                ]
                self.binds.setdefault(headers["ce_id"], binds)
                if _does_something(decided):
                    namespace = record.key.decode().partition("/")[0]
                    self._namespaces.setdefault(headers["ce_id"], namespace)
            self._changed.set()
            self._changed = asyncio.Event()

    def unanswered(self, namespace: str) -> list[str]:
        """Ids of decisions for a namespace's jobs to which no answer was seen yet."""
        return [
            decision
            for decision, of in self._namespaces.items()
            if of == namespace and decision not in self._answered_ms
        ]

    async def next_unanswered(self, namespace: str, after: int) -> str:
        """The id of a decision, after ``after`` further decisions for the namespace, at a moment at
        which no outcome of it was read yet; empty if those of all of them were. Raises
        TimeoutError.
        """
        known = self._count(namespace)
        async with asyncio.timeout(WITHIN_S):
            while self._count(namespace) <= known + after:
                await self._changed.wait()
        return next(reversed(self.unanswered(namespace)), "")

    def _count(self, namespace: str) -> int:
        return sum(of == namespace for of in self._namespaces.values())

    async def was_unanswered(self, decision: str, at: float) -> bool:
        """Whether the decision had no outcome at ``at`` (of ``clock``). Waits for the outcome,
        whose record has its time. Raises TimeoutError.
        """
        async with asyncio.timeout(WITHIN_S):
            while decision not in self._answered_ms:
                await self._changed.wait()
        return self._answered_ms[decision] > at * 1000


def _does_something(decided: dict[str, Any]) -> bool:
    return bool(decided.get("enqueue") or decided.get("binds") or decided.get("evictions"))


def clock() -> float:
    """The clock that the log's records are stamped with."""
    return time.time()
