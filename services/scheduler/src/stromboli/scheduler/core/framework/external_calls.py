"""What a session asks of the outside while it runs, and what it was told.

A session stays a function of what it is given: who answers is given, and every answer goes into the
session's record, in the order in which it was asked for. Told the same again, it decides the same.
"""

import itertools
from collections.abc import Callable, Sequence

import msgspec


class ExternalRequest(msgspec.Struct, frozen=True):
    """A POST of JSON to a URL, to be answered within ``timeout_s``."""

    url: str
    body: bytes
    timeout_s: float = 1.0


class ExternalResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the answer, or why there is none."""

    body: str = ""
    error: str = ""


Ask = Callable[[Sequence[ExternalRequest]], Sequence[ExternalResponse]]
"""One answer for each question, in their order."""
Run = tuple[int, ExternalResponse]
"""So many equal answers, one after another: nodes mostly say the same."""


class ReplayMismatchError(BaseException):
    """A session that is run again asks for more than was answered then: it is not the same. No
    ``Exception``, so that it is not taken for a fault of the plugin that asks."""


class ExternalCalls:
    """One session's questions and answers."""

    def __init__(self, ask: Ask | None = None) -> None:
        """``ask``: who answers; None: nobody does, as where decisions are only tried."""
        self._ask = ask
        self._told: list[ExternalResponse] = []

    @property
    def is_possible(self) -> bool:
        """Somebody is there to answer."""
        return self._ask is not None

    def ask(self, questions: Sequence[ExternalRequest]) -> Sequence[ExternalResponse]:
        """Answers in the order of the questions, which may be sent all at once."""
        if self._ask is None:
            return [ExternalResponse(error="nobody is asked here")] * len(questions)
        answers = self._ask(questions)
        self._told.extend(answers)
        return answers

    @property
    def record(self) -> list[Run]:
        """All that was answered so far."""
        return [(len(list(same)), answer) for answer, same in itertools.groupby(self._told)]


def replay_responses(runs: Sequence[Run]) -> Ask:
    """Who answers as it stands in a record. Raises AnswersDifferError when asked for more."""
    left = (answer for count, answer in runs for _ in range(count))

    def ask(questions: Sequence[ExternalRequest]) -> Sequence[ExternalResponse]:
        answers = list(itertools.islice(left, len(questions)))
        if len(answers) < len(questions):
            raise ReplayMismatchError(f"{questions[len(answers)].url} was not asked then")
        return answers

    return ask
