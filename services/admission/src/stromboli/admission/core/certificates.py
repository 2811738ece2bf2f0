"""Which certificates of our own are made, trusted and shown, and when.

Each is its own authority: there is no key with which another one could be made. Those that have not
ended are all trusted by the API server. A new one is made long before the last one ends, and shown
only once it has been trusted for a while, so no API server meets one that it was not told of; how
long follows from the certificate itself, so replicas agree without a word.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

VALIDITY = timedelta(days=90)
"""From its making to its end: as long as public authorities have it."""
RENEW_BEFORE_END = timedelta(days=30)
"""What is left of a certificate when the next one is made: time for people to notice trouble."""
TRUST_PROPAGATION = timedelta(minutes=10)
"""From its making until it is shown, where another one can be shown meanwhile: API servers learn of
a change within seconds, a replica that lost its connection within minutes."""


class CertificateInfo(msgspec.Struct, frozen=True):
    """The facts of a certificate that decide about its use. ``name``: its key in the Secret."""

    name: str
    made_at: datetime
    ends_at: datetime
    serves: frozenset[str]


def needs_renewal(
    held: Collection[CertificateInfo], wanted: Collection[str], now: datetime
) -> bool:
    """Whether a new one has to be made: none for all ``wanted`` names lasts long enough."""
    return not any(
        each.serves >= set(wanted) and each.ends_at - now > RENEW_BEFORE_END for each in held
    )


def trusted(held: Collection[CertificateInfo], now: datetime) -> list[CertificateInfo]:
    """Those that have not ended, the oldest first."""
    return sorted(
        (each for each in held if each.ends_at > now), key=lambda each: (each.made_at, each.name)
    )


def served(
    held: Collection[CertificateInfo], wanted: Collection[str], now: datetime
) -> CertificateInfo | None:
    """The newest that has settled, else the oldest; None when none is for all ``wanted`` names."""
    fitting: Sequence[CertificateInfo] = [
        each for each in trusted(held, now) if each.serves >= set(wanted)
    ]
    settled = [each for each in fitting if now - each.made_at >= TRUST_PROPAGATION]
    return settled[-1] if settled else next(iter(fitting), None)
