"""Requests to the identity provider over https: a time limit, a size limit, one kind of error."""

import ssl
from typing import TypeVar

import httpx
import msgspec

from stromboli.console.oidc.errors import ProviderUnavailableError
from stromboli.shared import decoding

ANSWER_WITHIN_S = 10.0
MOST_BYTES = 1024 * 1024
"""Discovery, keys and tokens have some KB."""
FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True):
    """An answer of the provider."""

    address: str
    status: int
    content: bytes

    def read(self, kind: type[T]) -> T:
        """The answer as JSON. Raises ProviderUnavailableError."""
        try:
            return decoding.from_json(self.content, kind)
        except msgspec.DecodeError as error:
            why = f"status {self.status}, not the expected JSON: {error}"
            raise ProviderUnavailableError(f"{self.address}: {why}") from None


def certificate_authority(file: str) -> ssl.SSLContext:
    """The TLS context that verifies the provider's certificate by a CA file (PEM), or by the
    system's CAs if ``file`` is empty. Raises ProviderUnavailableError."""
    try:
        return ssl.create_default_context(cafile=file or None)
    except OSError as error:  # includes ssl.SSLError
        why = error.strerror or str(error)
        raise ProviderUnavailableError(f"STROM_CONSOLE_OIDC_CA_FILE={file}: {why}") from None


async def get(authority: ssl.SSLContext, address: str) -> Answer:
    """Sends a GET request. Raises ProviderUnavailableError for any status but 200."""
    answer = await _send(authority, httpx.Request("GET", address), httpx.Auth())
    if answer.status != httpx.codes.OK:
        raise ProviderUnavailableError(f"{address}: status {answer.status}")
    return answer


async def post(authority: ssl.SSLContext, address: str, form: str, auth: httpx.Auth) -> Answer:
    """Posts a form. Raises ProviderUnavailableError for a status of 500 or more."""
    request = httpx.Request("POST", address, content=form.encode(), headers=FORM)
    answer = await _send(authority, request, auth)
    if answer.status >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise ProviderUnavailableError(f"{address}: status {answer.status}")
    return answer


async def _send(authority: ssl.SSLContext, request: httpx.Request, auth: httpx.Auth) -> Answer:
    address = str(request.url)
    if request.url.scheme != "https":
        raise ProviderUnavailableError(f"{address}: secrets are sent over https only")
    content = bytearray()
    try:
        async with httpx.AsyncClient(verify=authority, timeout=ANSWER_WITHIN_S) as http:
            response = await http.send(request, auth=auth, stream=True)
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise ProviderUnavailableError(f"{address}: more than {MOST_BYTES} bytes")
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        raise ProviderUnavailableError(f"{address}: {why}") from None
    return Answer(address, response.status_code, bytes(content))
