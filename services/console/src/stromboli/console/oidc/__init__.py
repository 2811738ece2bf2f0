"""Logins by OpenID Connect: the authorization code flow with PKCE at one provider.

::

    browser ── POST /login/provider ──▶ pending login (cookie) ──▶ page of the provider
    browser ◀── /login/callback?code ───────────────────────────── page of the provider
               state of the cookie ─▶ code ─▶ provider: tokens ─▶ ID token checked ─▶ session

It owns the requests to the provider and the checks of its answers. ``pending.py``: what a browser
keeps between start and callback; ``id_tokens.py``: which ID tokens are accepted; ``provider.py``:
discovery, keys, tokens. oauthlib builds the messages, joserfc checks the signatures.

Sources: OpenID Connect Core 1.0, Discovery 1.0 and RP-Initiated Logout 1.0; RFC 6749 (OAuth 2.0),
RFC 7636 (PKCE), RFC 9207 (issuer of a response), RFC 9700 (security).
"""
