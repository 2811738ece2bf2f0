"""Dex, an OpenID Connect provider of others, with users and passwords of its configuration.

It serves https with a certificate of a given authority, and keeps everything in memory: a restart
forgets all logins and makes new signing keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import trustme

from stromboli.testkit.parts import ports
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.tools import OperatorTool

PASSWORD = "password"
HASH = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"
"""bcrypt of the password."""
CLIENT = "stromboli-console"
SECRET = "secret with / and ="
"""Characters that a client has to encode."""


@dataclass
class DexOptions:
    """``redirects``: addresses to which logins may return; ``users``: their e-mail addresses;
    ``id_tokens``: life of an ID token, as ``40s``."""

    redirects: Sequence[str]
    users: Sequence[str] = ("vera@example.com",)
    id_tokens: str = "1h"
    connectors: list[dict[str, Any]] = field(default_factory=list)


class Dex(Part):
    """Dex at ``issuer``."""

    name: ClassVar[str] = "dex"

    def __init__(
        self, tool: OperatorTool, state: Path, authority: trustme.CA, options: DexOptions
    ) -> None:
        super().__init__(state)
        self._tool = tool
        self._authority = authority
        self.options = options
        """May be changed before a restart."""

    @property
    def issuer(self) -> str:
        """Its address, once it has started."""
        return f"https://{ports.LOOPBACK}:{self.ports[0]}/dex"

    @property
    def ca_file(self) -> Path:
        """PEM file of the authority of its certificate."""
        return self.state / "ca.pem"

    def command(self) -> list[str]:
        """Dex's command line."""
        return [self._tool.program, "serve", str(self.state / "config.json")]

    async def prepare(self) -> None:
        """Write certificate and configuration."""
        issued = self._authority.issue_cert(ports.LOOPBACK)
        self._authority.cert_pem.write_to_path(str(self.ca_file))
        chain, key = self.state / "tls.crt", self.state / "tls.key"
        chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(mode=0o600)
        key.write_bytes(issued.private_key_pem.bytes())
        (self.state / "config.json").write_text(json.dumps(self._configuration(chain, key)))

    async def is_ready(self) -> bool:
        """Whether it listens: its health is served with the rest."""
        return "listening on" in self.process.logged()

    def _configuration(self, chain: Path, key: Path) -> dict[str, Any]:
        options = self.options
        client = {
            "id": CLIENT,
            "secret": SECRET,
            "name": "Stromboli",
            "redirectURIs": list(options.redirects),
        }
        users = [
            {"email": it, "hash": HASH, "username": it.partition("@")[0], "userID": f"id-{it}"}
            for it in options.users
        ]
        return {
            "issuer": self.issuer,
            "storage": {"type": "memory"},
            "web": {
                "https": f"{ports.LOOPBACK}:{self.ports[0]}",
                "tlsCert": str(chain),
                "tlsKey": str(key),
            },
            "frontend": {"dir": str(self._tool.directory / "web")},
            "expiry": {"idTokens": options.id_tokens},
            "staticClients": [client],
            "enablePasswordDB": True,
            "staticPasswords": users,
            "connectors": options.connectors,
        }
