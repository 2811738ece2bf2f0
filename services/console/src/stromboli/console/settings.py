"""All settings of the console."""

import msgspec


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the console, in embedded mode or as a process."""

    server: str = "http://127.0.0.1:8480"
    """Address of REST (admission). Tokens of viewers are sent there: https beyond loopback."""
    ca_file: str = ""
    """Certificate of the authority that signed REST's, as PEM; empty: those of the system. It is
    read at each login."""
    open_to_all: bool = False
    """Pages of a server without accounts: a login needs no token, and pages may be served beyond
    loopback as http. Only for a container whose port is published on the loopback of its machine;
    the console then accepts the host names of loopback, and ``hosts``."""
    hosts: tuple[str, ...] = ()
    """Names under which browsers reach the console, besides loopback; requests to other names are
    refused, which prevents DNS rebinding. Required beyond loopback."""
    token_login: bool = True
    """Whether the login page takes tokens. Without, ``oidc_issuer`` is required."""
    oidc_issuer: str = ""
    """Address of an OpenID Connect provider as in its tokens, with https; empty: none. The API
    server has to trust the same issuer, since REST asks it about the viewers' ID tokens."""
    oidc_client_id: str = ""
    """Name of the console at the provider, and audience of the ID tokens."""
    oidc_client_secret_file: str = ""
    """File with the client's secret, read for each request; empty: a public client, which PKCE
    alone protects."""
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    """What the console asks for. With ``offline_access`` most providers give the refresh token that
    keeps a session alive beyond the life of an ID token."""
    oidc_required_claims: tuple[str, ...] = ()
    """Claims of the ID token without which a login is refused with an explanation, as ``groups``
    where rights are bound to groups: users without any would see empty pages."""
    oidc_ca_file: str = ""
    """Certificate of the authority that signed the provider's, as PEM; empty: those of the
    system."""
    oidc_name: str = ""
    """Name of the provider on the login page; empty: the host of the issuer."""
    read_only: bool = False
    """Pages have no actions, and requests for actions are refused."""
    session_hours: float = 12.0
    """Hours after which a viewer has to log in again: a working day."""
    most_sessions: int = 500
    """Sessions of browsers at a time; the one unused for longest is closed for a new one."""
    most_watches: int = 400
    """Watches of REST over all sessions; each holds the rows of one list in memory, about 600
    bytes a job. The one unused for longest is closed for a new one."""


class Settings(ConsoleSettings, frozen=True, kw_only=True):
    """Settings of the console as a process."""

    host: str = "127.0.0.1"
    """Address of the pages. Beyond loopback a certificate or ``behind_https`` is required."""
    port: int = 8487
    certificate_file: str = ""
    """Certificate of the pages; without one they are served as http."""
    key_file: str = ""
    behind_https: bool = False
    """A proxy in front of the console terminates https: cookies are for https only."""
    health_host: str = "0.0.0.0"
    """Address of the health endpoint: probes come from the node, not from loopback."""
    health_port: int = 8488
