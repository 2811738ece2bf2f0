"""HTTP client for scheduler extenders.

The core thread calls it and waits, so it uses no event loop. The requests of one batch are sent
concurrently. A service that stops does not wait for responses.

httpx, and the certificates that its client reads, are loaded with the first request: most clusters
have no extender, and a start does not wait for them.
"""

import functools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stromboli.scheduler.core.framework import external_calls
from stromboli.shared.runtime import telemetry

if TYPE_CHECKING:
    import httpx

MAX_CONCURRENT = 16
"""Limit of concurrent requests, because extenders are small processes."""
MAX_RESPONSE_BYTES = 10 * 2**20
"""Largest response, as in Volcano."""

_asked = telemetry.meter.create_counter(
    "stromboli.scheduler.extender.questions", description="Calls of extenders, by outcome"
)


class ExtenderClient:
    """Sends requests and returns responses (``external_calls.Ask``). A context manager."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="extender")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if "_http" in self.__dict__:
            self._http.close()

    def __call__(
        self, questions: Sequence[external_calls.ExternalRequest]
    ) -> Sequence[external_calls.ExternalResponse]:
        """Return a response for each request. After an error, queued requests are not sent."""
        is_over = threading.Event()
        http = self._http  # created by this thread, then shared with the others

        def send(question: external_calls.ExternalRequest) -> external_calls.ExternalResponse:
            if is_over.is_set():
                return external_calls.ExternalResponse(
                    error="not called, because a previous call got no response"
                )
            answer = _send(http, question)
            _asked.add(1, {"outcome": "failed" if answer.error else "answered"})
            if answer.error:
                is_over.set()
            return answer

        if len(questions) == 1:
            return [send(questions[0])]
        return list(self._threads.map(send, questions))

    @functools.cached_property
    def _http(self) -> "httpx.Client":
        import httpx

        return httpx.Client()


def _send(
    http: "httpx.Client", question: external_calls.ExternalRequest
) -> external_calls.ExternalResponse:
    import httpx

    headers = {"content-type": "application/json"}
    try:
        with http.stream(
            "POST",
            question.url,
            content=question.body,
            headers=headers,
            timeout=question.timeout_s,
        ) as response:
            if response.status_code != httpx.codes.OK:
                return external_calls.ExternalResponse(
                    error=f"it responded with status {response.status_code}"
                )
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    return external_calls.ExternalResponse(
                        error=f"its response has more than {MAX_RESPONSE_BYTES} bytes"
                    )
            return external_calls.ExternalResponse(body=body.decode())
    except httpx.TimeoutException:
        return external_calls.ExternalResponse(error=f"no response within {question.timeout_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return external_calls.ExternalResponse(error=str(error) or type(error).__name__)
    except UnicodeDecodeError:
        return external_calls.ExternalResponse(error="its response is not UTF-8")
