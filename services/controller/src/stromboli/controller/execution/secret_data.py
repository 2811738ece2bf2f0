"""Generates keys and tokens when their Secret is created.

Only the API server stores them: they are in no plan, log line, message or topic. An existing Secret
keeps its data.
"""

import asyncio
import base64
import secrets

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from stromboli.controller.core import commands, manifests

KEY_BITS = 2048
"""Size of an RSA key, as in Volcano."""
TOKEN_BYTES = 32


async def completed(command: commands.Create) -> bytes:
    """The body of the Secret with the generated data of ``command.secret``."""
    if command.secret == "ssh-keys":
        # Takes some hundred milliseconds, so it must not run on the event loop.
        secret_data = await asyncio.to_thread(ssh_keys)
    else:
        secret_data = {"token": secrets.token_urlsafe(TOKEN_BYTES).encode()}
    body = msgspec.json.decode(command.body)
    encoded = {name: base64.b64encode(value).decode() for name, value in secret_data.items()}
    return manifests.encode({**body, "data": {**(body.get("data") or {}), **encoded}})


def ssh_keys() -> dict[str, bytes]:
    """A new key pair as files: ``id_rsa`` (PKCS 1), ``id_rsa.pub``, ``authorized_keys``."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return {"id_rsa": private, "id_rsa.pub": public + b"\n", "authorized_keys": public + b"\n"}
