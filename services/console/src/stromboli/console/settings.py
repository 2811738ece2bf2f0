"""All settings of the console."""

import msgspec


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the console, in embedded mode or as a process."""

    server: str = "http://127.0.0.1:8480"
    """Address of REST (admission), to which the console sends viewers' tokens: https outside
    loopback."""
    ca_file: str = ""
    """File with the CA certificates (PEM) that verify REST's certificate; empty: those of the
    system. It is read at each login."""
    open_to_all: bool = False
    """The server has no accounts: a login needs no token, and pages may be served outside loopback
    over http. Only for a container whose port is published on the loopback of its machine;
    the console then accepts the host names of loopback, and ``hosts``."""
    hosts: tuple[str, ...] = ()
    """Names under which browsers reach the console, in addition to loopback; requests to other
    names are refused, which prevents DNS rebinding. Required outside loopback."""
    token_login: bool = True
    """Whether the login page accepts tokens. If it does not, ``oidc_issuer`` is required."""
    oidc_issuer: str = ""
    """Address of an OpenID Connect provider (https), exactly as in its tokens; empty: no provider.
    The API server has to trust the same issuer, since it authenticates the viewers' ID tokens."""
    oidc_client_id: str = ""
    """Client ID of the console at the provider, and audience of the ID tokens."""
    oidc_client_secret_file: str = ""
    """File with the client's secret, read for each request; empty: a public client, which PKCE
    alone protects."""
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    """Scopes that the console requests. With ``offline_access`` most providers issue the refresh
    token that keeps a session alive after its ID token expires."""
    oidc_required_claims: tuple[str, ...] = ()
    """Claims without which an ID token is refused with an explanation, such as ``groups`` where
    rights are bound to groups: users without groups would see empty pages."""
    oidc_ca_file: str = ""
    """File with the CA certificates (PEM) that verify the provider's certificate; empty: those of
    the system."""
    oidc_name: str = ""
    """Name of the provider on the login page; empty: the host of the issuer."""
    read_only: bool = False
    """Pages have no actions, and requests for actions are refused."""
    grafana_url: str = ""
    """Address of the operators' Grafana (http or https), to which the page *System* links; empty:
    no link."""
    session_hours: float = 12.0
    """Hours after which a viewer has to log in again: a working day."""
    most_sessions: int = 500
    """Maximum concurrent sessions of browsers; a new one closes the least recently used one."""
    most_watches: int = 400
    """Maximum watches of REST in all sessions; each holds the rows of one list in memory, about 600
    bytes per job. A new one closes the least recently used one."""


class Settings(ConsoleSettings, frozen=True, kw_only=True):
    """Settings of the console as a process."""

    host: str = "127.0.0.1"
    """Address of the pages. Outside loopback a certificate or ``behind_https`` is required."""
    port: int = 8487
    certificate_file: str = ""
    """Certificate of the pages; without one they are served as http."""
    key_file: str = ""
    behind_https: bool = False
    """A proxy in front of the console terminates https: cookies are for https only."""
    health_host: str = "0.0.0.0"
    """Address of the health endpoint: probes come from the node, not from loopback."""
    health_port: int = 8488
