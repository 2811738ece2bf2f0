"""``KubernetesAccounts``: authenticates by TokenReview and authorizes by SubjectAccessReview.

Reviews are created and never stored: the response is the object with a status. Source: Kubernetes'
API reference, authentication.k8s.io/v1 and authorization.k8s.io/v1. A server that does not
implement audiences omits them from its response; such a token is rejected.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from stromboli.shared import decoding, errors
from stromboli.shared.api import meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import accounts, port

TOKEN_REVIEWS = Kind(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", meta.Object, namespaced=False
)
SELF_REVIEWS = Kind(
    "authentication.k8s.io",
    "v1",
    "SelfSubjectReview",
    "selfsubjectreviews",
    meta.Object,
    namespaced=False,
)
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    meta.Object,
    namespaced=False,
)


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Recognised(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _Recognised


class _SelfReview(msgspec.Struct, frozen=True):
    class Status(msgspec.Struct, frozen=True, rename="camel"):
        """The status of a SelfSubjectReview: the user of this process."""

        user_info: _UserInfo

    status: Status


class _AccessReview(msgspec.Struct, frozen=True):
    class Status(msgspec.Struct, frozen=True):
        """The status of a SubjectAccessReview: the decision of the authorizers."""

        allowed: bool = False
        denied: bool = False

    status: Status


class KubernetesAccounts:
    """See ``accounts.Accounts``. Needs the right to create reviews."""

    def __init__(self, cluster: port.Cluster) -> None:
        self._cluster = cluster

    async def authenticate(
        self, token: str, audiences: Sequence[str]
    ) -> accounts.User | accounts.UnknownToken:
        """Authenticate the token with a TokenReview."""
        spec = {"token": token, "audiences": list(audiences)}
        review_status = (await self._asked(TOKEN_REVIEWS, spec, _TokenReview)).status
        if not review_status.authenticated:
            # The error comes from authenticators of the API server and may contain the token.
            reason = (
                review_status.error.replace(token, "...") or "the API server rejected the token"
            )
            return accounts.UnknownToken(reason)
        if not set(review_status.audiences) & set(audiences):
            return accounts.UnknownToken(f"the token is not for {' or '.join(audiences)}")
        user = review_status.user
        return accounts.User(name=user.username, uid=user.uid, groups=user.groups, extra=user.extra)

    async def is_allowed(self, user: accounts.User, right: accounts.Right) -> bool:
        """Authorize the user with a SubjectAccessReview."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            "resourceAttributes": {
                "verb": right.verb,
                "group": right.group,
                "resource": right.resource,
                "subresource": right.subresource,
                "namespace": right.namespace,
                "name": right.name,
            },
        }
        review_status = (await self._asked(ACCESS_REVIEWS, spec, _AccessReview)).status
        return review_status.allowed and not review_status.denied

    async def own_username(self) -> str:
        """Read the user name with a SelfSubjectReview."""
        self_review: _SelfReview = await self._asked(SELF_REVIEWS, {}, _SelfReview)
        return self_review.status.user_info.username

    async def _asked(self, kind: Kind[Any], spec: dict[str, Any], answer: type[Any]) -> Any:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
        if not spec:
            del body["spec"]
        try:
            return decoding.from_json(
                await self._cluster.create(kind, "", msgspec.json.encode(body)), answer
            )
        except errors.TransientError as error:
            raise errors.UnavailableError(kind.kind, error.reason, error.retry_after_s) from None
        except (errors.ExternalError, msgspec.DecodeError) as error:
            # Any error here is between the API server and this process; the user did not cause it.
            reason = f"the API server could not perform the review: {error}"
            raise errors.UnavailableError(kind.kind, reason) from None
