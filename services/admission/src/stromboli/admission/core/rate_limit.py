"""Request rate limits: a token bucket per user.

A bucket holds ``burst`` tokens and refills at ``rate`` tokens per second; a request takes one. A
full bucket is the same as none, so that memory is bounded by the users of the last
``burst / rate`` seconds. Times are seconds of a monotonic clock and arrive as arguments.
"""

import collections


class TokenBuckets:
    """The buckets of all users. A rate of 0 means no limit."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._tokens: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()
        """User -> (tokens, time), ordered by time."""

    def __len__(self) -> int:
        """The number of users whose bucket may not be full."""
        return len(self._tokens)

    def take(self, user: str, now: float) -> float:
        """Take a token. Returns 0.0, or the seconds until the next token if the request is
        rejected."""
        if self._rate <= 0:
            return 0.0
        self._drop_full(now)
        tokens, since = self._tokens.pop(user, (self._burst, now))
        tokens = min(tokens + (now - since) * self._rate, self._burst)
        if tokens < 1.0:
            self._tokens[user] = (tokens, now)
            return (1.0 - tokens) / self._rate
        self._tokens[user] = (tokens - 1.0, now)
        return 0.0

    def _drop_full(self, now: float) -> None:
        """Drop the oldest buckets that are full by now, amortised O(1)."""
        while self._tokens:
            user, (_, since) = next(iter(self._tokens.items()))
            if (now - since) * self._rate < self._burst:
                return
            del self._tokens[user]
