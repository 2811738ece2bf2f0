"""Accounts with the tokens of agents."""

from collections.abc import Mapping, Sequence

from stromboli.shared.cluster import accounts

AGENT = "system:serviceaccount:kube-system:agents"


def user(name: str, extra: Mapping[str, tuple[str, ...]]) -> accounts.User:
    return accounts.User(name=name, extra=dict(extra))


class Accounts:
    """Tokens with their users, and the number of reviews."""

    def __init__(self) -> None:
        self.users: dict[str, accounts.User] = {}
        self.right = 0
        self.audiences: Sequence[str] = ()

    async def authenticate(
        self, token: str, audiences: Sequence[str]
    ) -> accounts.User | accounts.UnknownToken:
        self.right += 1
        self.audiences = audiences
        unknown = accounts.UnknownToken("the API server rejected the token")
        return self.users.get(token, unknown)

    async def is_allowed(self, user: accounts.User, right: accounts.Right) -> bool:
        raise AssertionError("rights play no part")

    async def own_username(self) -> str:
        raise AssertionError("our own name plays no part")
