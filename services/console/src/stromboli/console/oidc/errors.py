"""Why a login or a renewal failed: the provider is unavailable, or it refused."""


class LoginRefusedError(Exception):
    """The login is over: the user, the provider or a check refused it. ``reason``: what happened;
    ``next_step``: what the user or the administrator can do."""

    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(f"{reason} {next_step}")
        self.reason = reason
        self.next_step = next_step


class ProviderUnavailableError(Exception):
    """The provider does not answer, or its answer is invalid; a later attempt may succeed."""
