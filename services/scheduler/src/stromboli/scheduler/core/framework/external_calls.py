"""Calls of plugins to other processes during a session, and their recorded responses.

A session stays a function of its inputs: the function that makes the calls is an input, and every
response is recorded in the order of the requests. With the same responses the session decides the
same.
"""

import itertools
from collections.abc import Callable, Sequence

import msgspec


class ExternalRequest(msgspec.Struct, frozen=True):
    """A POST of JSON to a URL with a timeout."""

    url: str
    body: bytes
    timeout_s: float = 1.0


class ExternalResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the response, or the error."""

    body: str = ""
    error: str = ""


Ask = Callable[[Sequence[ExternalRequest]], Sequence[ExternalResponse]]
"""Makes the requests; returns one response for each, in order."""
Run = tuple[int, ExternalResponse]
"""(count, response): equal responses in a row, because nodes mostly give the same one."""


class ReplayMismatchError(BaseException):
    """A replayed session makes more calls than were recorded, so it is not the same session. Not an
    ``Exception``, so that it is not attributed to the plugin that makes the call.
    """


class ExternalCalls:
    """The calls of one session."""

    def __init__(self, ask: Ask | None = None) -> None:
        """``ask``: makes the calls; None if no calls are possible, as in a dry run."""
        self._send = ask
        self._responses: list[ExternalResponse] = []

    @property
    def is_possible(self) -> bool:
        """Whether calls are possible."""
        return self._send is not None

    def ask(self, questions: Sequence[ExternalRequest]) -> Sequence[ExternalResponse]:
        """Responses in the order of the requests, which may be sent concurrently."""
        if self._send is None:
            return [ExternalResponse(error="no external calls are possible here")] * len(questions)
        answers = self._send(questions)
        self._responses.extend(answers)
        return answers

    @property
    def record(self) -> list[Run]:
        """All responses so far."""
        return [(len(list(same)), answer) for answer, same in itertools.groupby(self._responses)]


def replay_responses(runs: Sequence[Run]) -> Ask:
    """Responds from a record. Raises ReplayMismatchError when a call is not recorded."""
    left = (answer for count, answer in runs for _ in range(count))

    def ask(questions: Sequence[ExternalRequest]) -> Sequence[ExternalResponse]:
        answers = list(itertools.islice(left, len(questions)))
        if len(answers) < len(questions):
            raise ReplayMismatchError(
                f"{questions[len(answers)].url} was not called in the recorded session"
            )
        return answers

    return ask
