"""The life cycle of self-signed certificates: when they are created, trusted and served.

Each certificate is its own authority: no key exists that could sign another one. The API server
trusts all certificates that have not expired. A new one is created long before the last one
expires, and is served only after it has been trusted for a while, so that no API server receives
one that it does not trust yet. The time follows from the certificate itself, so replicas agree
without communication.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

VALIDITY = timedelta(days=90)
"""Time from creation to expiry, as public authorities use it."""
RENEW_BEFORE_END = timedelta(days=30)
"""Remaining validity at which the next certificate is created: time for operators to notice an
error.
"""
TRUST_PROPAGATION = timedelta(minutes=10)
"""Time from creation until a certificate is served, if another one can be served meanwhile: API
servers observe a change within seconds, a replica that lost its connection within minutes.
"""


class CertificateInfo(msgspec.Struct, frozen=True):
    """The properties of a certificate that determine its use. ``name``: its key in the Secret."""

    name: str
    made_at: datetime
    ends_at: datetime
    serves: frozenset[str]


def needs_renewal(
    certificates: Collection[CertificateInfo], wanted: Collection[str], now: datetime
) -> bool:
    """Whether a new certificate is needed: false if one for all ``wanted`` names is valid long
    enough."""
    return not any(
        each.serves >= set(wanted) and each.ends_at - now > RENEW_BEFORE_END
        for each in certificates
    )


def trusted(certificates: Collection[CertificateInfo], now: datetime) -> list[CertificateInfo]:
    """Certificates that have not expired, the oldest first."""
    return sorted(
        (each for each in certificates if each.ends_at > now),
        key=lambda each: (each.made_at, each.name),
    )


def served(
    certificates: Collection[CertificateInfo], wanted: Collection[str], now: datetime
) -> CertificateInfo | None:
    """The newest certificate for all ``wanted`` names that has been trusted for long enough, else
    the oldest one; None if there is no such certificate.
    """
    fitting: Sequence[CertificateInfo] = [
        each for each in trusted(certificates, now) if each.serves >= set(wanted)
    ]
    settled = [each for each in fitting if now - each.made_at >= TRUST_PROPAGATION]
    return settled[-1] if settled else next(iter(fitting), None)
