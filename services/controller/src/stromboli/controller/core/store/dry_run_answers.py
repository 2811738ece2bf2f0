"""Cached answers of the API server to dry runs of pods, for pods that differ only in their names.

A repeated submission needs no dry run: its plan is derived from the cached answer. Rules:

1. Only the spec of the answer is cached, and only if no webhook or policy changes new pods: then
   the spec depends on the namespace, the requested spec, the template's labels and annotations, and
   objects that rarely change (limit ranges, priority classes, runtime classes, service accounts).
   Namespace and request are part of the key.
2. An answer is used for ``REMEMBERED`` after its dry run.
3. An outdated answer is detected like a wrong dry run: each created pod is compared with its plan.
   The first difference drops the answers with that spec, since an object may have changed. The next
   difference disables plans of the spec, as does a difference that no cached answer can explain
   (``differs``).
"""

from collections import OrderedDict
from datetime import datetime, timedelta

import msgspec

from stromboli.shared.api import core

REMEMBERED = timedelta(seconds=60)
"""Age up to which an answer is used: jobs that repeat a template usually come within seconds, and
one dry run a minute for each template costs nothing."""
MOST_ANSWERS = 1_000
"""Maximum number of answers, a few KiB each; the oldest are dropped first."""


class _Answer(msgspec.Struct):
    spec: core.PodSpec
    digest: str
    at: datetime
    is_used: bool = False


class DryRunAnswers:
    """Likeness of a requested pod -> the spec in the API server's answer. O(1), ``differs``
    O(answers)."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._dropped: set[str] = set()

    def note(self, likeness: str, spec: core.PodSpec, digest: str, now: datetime) -> None:
        """Cache the spec of an answer, with the digest that identifies it in ``differs``."""
        self._answers.pop(likeness, None)
        self._answers[likeness] = _Answer(spec, digest, now)
        if len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)

    def of(self, likeness: str, now: datetime) -> core.PodSpec | None:
        """The spec in the API server's answer to an equal request; None if there is no answer or it
        is too old."""
        answer = self._answers.get(likeness)
        if answer is None:
            return None
        if not timedelta() <= now - answer.at < REMEMBERED:
            del self._answers[likeness]
            return None
        answer.is_used = True
        return answer.spec

    def differs(self, digest: str) -> bool:
        """Note that a created pod differs from the plan with this spec. Returns whether a cached
        answer explains the difference: the spec was taken from one, and this is its first
        difference."""
        of_spec = [key for key, answer in self._answers.items() if answer.digest == digest]
        was_used = any(self._answers[key].is_used for key in of_spec)
        for key in of_spec:
            del self._answers[key]
        is_new = digest not in self._dropped and len(self._dropped) < MOST_ANSWERS
        is_explained = was_used and is_new
        if is_explained:
            self._dropped.add(digest)
        return is_explained
