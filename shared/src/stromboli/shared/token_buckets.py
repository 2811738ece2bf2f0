"""Rate limits: a token bucket for each key, such as a user or a node. Pure.

A bucket holds ``burst`` tokens and refills at ``rate`` tokens per second. A full bucket is the same
as none, so that memory is bounded by the keys of the last ``burst / rate`` seconds. Times are
seconds of a monotonic clock and arrive as arguments.
"""

import collections
import sys


class TokenBuckets:
    """The buckets of all keys. A rate of 0 means no limit. ``most_keys``: the maximum number of
    keys; the least recently used ones are dropped. Set it if clients can invent keys."""

    def __init__(self, rate: float, burst: float, most_keys: int = sys.maxsize) -> None:
        self._most_keys = most_keys
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._tokens: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()
        """Key -> (tokens, time), ordered by time. Negative tokens are a debt."""

    def __len__(self) -> int:
        """The number of keys whose bucket may not be full."""
        return len(self._tokens)

    def take(self, key: str, now: float) -> float:
        """Take a token. Returns 0.0, or the seconds until the next token if the request is
        rejected."""
        if self._rate <= 0:
            return 0.0
        missing = 1.0 - self._left(key, now)
        self.spend(key, 1.0 if missing <= 0 else 0.0, now)
        return max(missing, 0.0) / self._rate

    def wait_s(self, key: str, now: float, tokens: float = 0.0) -> float:
        """Seconds until the bucket has this many tokens; for 0, until it has no debt."""
        missing = max(tokens - self._left(key, now), 0.0)
        return missing / self._rate if self._rate > 0 else 0.0

    def spend(self, key: str, tokens: float, now: float) -> None:
        """Take tokens, even more than the bucket holds, for a cost that is known only afterwards.
        Amortized O(1)."""
        self._drop_full(now)
        left = self._left(key, now) - tokens
        self._tokens.pop(key, None)
        self._tokens[key] = (left, now)
        if len(self._tokens) > self._most_keys:
            self._tokens.popitem(last=False)

    def _left(self, key: str, now: float) -> float:
        tokens, since = self._tokens.get(key, (self._burst, now))
        return min(tokens + (now - since) * self._rate, self._burst)

    def _drop_full(self, now: float) -> None:
        """Drop the oldest buckets that are full by now."""
        while self._tokens:
            key = next(iter(self._tokens))
            if self._left(key, now) < self._burst:
                return
            del self._tokens[key]
