"""Limits of logins: of concurrent ones in total and per address, and of failed ones per address.

A login costs a request to REST or to the identity provider, and any client can begin one. Limits:

1. ``MOST_AT_A_TIME`` concurrent logins in total, ``MOST_OF_ADDRESS`` from one address.
2. An address may fail ``FAILURES`` times in a row, and one more time every ``REFILL_S`` seconds.
   There is no such limit for all addresses: it would let one client lock all others out.
3. Memory: ``MOST_ADDRESSES`` buckets; a new one drops the least recently used one. Logins that wait
   for the provider's page need no memory: they are in cookies (``oidc/pending.py``).

An address is an IPv4 address, or the /64 network of an IPv6 address, all of which one host can use.
"""

import contextlib
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from stromboli.shared.token_buckets import TokenBuckets

MOST_AT_A_TIME = 50
MOST_OF_ADDRESS = 10
FAILURES = 10
REFILL_S = 6.0
MOST_ADDRESSES = 4096
FORWARDED = "x-forwarded-for"
UNKNOWN = ""
"""Address of clients that the proxy does not name: only the limit of all logins applies."""


class TooManyLoginsError(Exception):
    """A limit of logins is reached. ``wait_s``: seconds until an attempt may succeed."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many logins; try again in {wait_s:.0f} s")
        self.wait_s = wait_s


class LoginLimits:
    """Counts this process's logins that are under way, and failed ones by address."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._under_way: Counter[str] = Counter()
        self._failures = TokenBuckets(1 / REFILL_S, FAILURES, MOST_ADDRESSES)

    @contextlib.contextmanager
    def login(self, address: str) -> Iterator[None]:
        """Counts a login as under way until the block ends. Raises TooManyLoginsError."""
        self._check(address)
        self._under_way[address] += 1
        try:
            yield
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]

    def failed(self, address: str) -> None:
        """Counts a failed login of an address, unless the address is unknown."""
        if address != UNKNOWN:
            self._failures.spend(address, 1.0, self._now())

    def __len__(self) -> int:
        return len(self._failures)

    def _check(self, address: str) -> None:
        if self._under_way.total() >= MOST_AT_A_TIME:
            raise TooManyLoginsError(REFILL_S)
        if address == UNKNOWN:
            return
        if self._under_way[address] >= MOST_OF_ADDRESS:
            raise TooManyLoginsError(REFILL_S)
        wait_s = self._failures.wait_s(address, self._now(), tokens=1.0)
        if wait_s:
            raise TooManyLoginsError(wait_s)


def address_of(peer: str, headers: Mapping[str, str], *, is_behind_proxy: bool) -> str:
    """The address that a request counts for. ``is_behind_proxy``: the proxy appends the client's
    address to a header; what the client itself put before it is ignored."""
    text = headers.get(FORWARDED, "").rpartition(",")[2].strip() if is_behind_proxy else peer
    try:
        client_address = ipaddress.ip_address(text)
    except ValueError:
        return UNKNOWN
    if isinstance(client_address, ipaddress.IPv6Address):
        if client_address.ipv4_mapped is not None:
            return str(client_address.ipv4_mapped)
        return str(ipaddress.ip_network((client_address, 64), strict=False))
    return str(client_address)
