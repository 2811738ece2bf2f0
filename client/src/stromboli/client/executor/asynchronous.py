"""``AsyncJobExecutor``: the executor of programs with an event loop."""

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from stromboli.client.blocking import Client
from stromboli.client.executor.executor import JobExecutor, Progress
from stromboli.client.executor.worker_job import WorkerOptions

P = ParamSpec("P")
T = TypeVar("T")


class AsyncJobExecutor:
    """A ``JobExecutor`` as an async context manager, with the same arguments.

    Leaving the context waits for all calls; leaving it by an exception, cancellation included, ends
    running calls.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        options: WorkerOptions | None = None,
        storage: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        max_losses: int = 2,
        retries: int = 0,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        progress: Progress | None = None,
    ) -> None:
        self._create = functools.partial(
            JobExecutor,
            workers,
            options=options,
            storage=storage,
            client=client,
            max_losses=max_losses,
            retries=retries,
            retry_on=retry_on,
            progress=progress,
        )
        self._executor: JobExecutor | None = None

    async def __aenter__(self) -> Self:
        self._executor = await asyncio.to_thread(self._create)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.blocking.shutdown, cancel_futures=kind is not None)

    @property
    def blocking(self) -> JobExecutor:
        """The ``JobExecutor`` of this context, for example for ``loop.run_in_executor``. Raises
        RuntimeError outside of the context."""
        if self._executor is None:
            raise RuntimeError(
                "AsyncJobExecutor: it has no job yet; enter it with `async with` first"
            )
        return self._executor

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """An awaitable of the call's result; its cancellation cancels a call that was not sent."""
        return asyncio.wrap_future(self.blocking.submit(fn, *args, **kwargs))

    async def map(self, fn: Callable[..., T], /, *iterables: Iterable[Any]) -> AsyncIterator[T]:
        """Results in the order of the arguments. All calls are submitted immediately; the remaining
        ones are cancelled when the iteration ends early."""
        futures = [self.blocking.submit(fn, *args) for args in zip(*iterables, strict=False)]
        try:
            for future in futures:
                yield await asyncio.wrap_future(future)
        finally:
            for future in futures:
                future.cancel()
