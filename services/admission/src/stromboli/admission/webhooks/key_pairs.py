"""Creates and parses certificates with their keys."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stromboli.admission.core import certificates

BACKDATED_BY = timedelta(hours=1)
"""How far a client's clock may be behind ours without the client rejecting a new certificate."""
MAX_COMMON_NAME_LENGTH = 64
"""Characters of a common name; longer names are only among the alternative names."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key in PEM. The key is a secret: it is never logged."""

    held: certificates.CertificateInfo
    certificate: bytes
    key: bytes


def make(names: Sequence[str], now: datetime, valid: timedelta) -> KeyPair:
    """A new self-signed key pair for hosts or addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    number = x509.random_serial_number()
    # Clients look up a trusted certificate by its subject: if two in a CA bundle have the same
    # subject, OpenSSL uses the first and rejects the other.
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, names[0][:MAX_COMMON_NAME_LENGTH]),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{number:x}"),
        ]
    )
    made_at = now.replace(microsecond=0)  # certificates have times in whole seconds
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(made_at - BACKDATED_BY)
        .not_valid_after(made_at + valid)
        .add_extension(
            x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    name = f"{made_at:%Y%m%dT%H%M%SZ}"
    return read(name, signed.public_bytes(serialization.Encoding.PEM), secret)


def read(name: str, certificate: bytes, key: bytes) -> KeyPair:
    """Parse a stored key pair. Raises ValueError when it is invalid."""
    known = x509.load_pem_x509_certificate(certificate)
    private = serialization.load_pem_private_key(key, None)
    if private.public_key() != known.public_key():
        raise ValueError("the key does not belong to the certificate")
    alternative_names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    serves = [
        *alternative_names.get_values_for_type(x509.DNSName),
        *(str(address) for address in alternative_names.get_values_for_type(x509.IPAddress)),
    ]
    made_at = known.not_valid_before_utc + BACKDATED_BY
    info = certificates.CertificateInfo(name, made_at, known.not_valid_after_utc, frozenset(serves))
    return KeyPair(info, certificate, key)


def ends_at(certificate: bytes) -> datetime:
    """When the first certificate of a PEM chain expires. Raises ValueError."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
