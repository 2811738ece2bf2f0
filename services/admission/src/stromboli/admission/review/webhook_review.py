"""Responses to the webhooks that an API server calls: defaults (mutate), validation (validate), and
the record of who deletes a job (record).

An object whose review needs an API server that does not answer in time is rejected with 503, so
that the client tries again. Objects of other schedulers pass unchanged.
"""

import asyncio
import math
from typing import Any

import msgspec

from stromboli.admission.auth import authentication
from stromboli.admission.core import admission_review, job_requests
from stromboli.admission.review import review_log, reviewer
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec.validation import patch
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.messages.admission import Violation
from stromboli.shared.runtime import telemetry


class WebhookReview:
    """Reviews for API servers. ``service_accounts``: the users that Stromboli's services write as;
    ``rejects_unknown_fields``: as for ``AdmissionPipeline``."""

    def __init__(
        self,
        rules: reviewer.Reviewer,
        log: review_log.ReviewLog,
        authenticator: authentication.Authenticator | None,
        service_accounts: frozenset[str],
        *,
        rejects_unknown_fields: bool = False,
    ) -> None:
        self._reviewer = rules
        self._log = log
        self._authenticator = authenticator
        self._service_accounts = service_accounts
        self._rejects_unknown_fields = rejects_unknown_fields
        self.claimed: frozenset[str] = frozenset()
        """Scheduler names under which another system acts: its objects get no defaults and are not
        rejected.
        """

    async def answer(self, path: str, body: bytes, within_s: float = math.inf) -> bytes:
        """The AdmissionReview response to an API server's request on ``path``.

        A review that takes longer than ``within_s`` seconds is rejected with 503. Raises ValueError
        if ``body`` is not an AdmissionReview.
        """
        request = admission_review.decode_request(body)
        kind = kinds.BY_NAME.get((request.kind.api_version, request.kind.kind))
        if kind is None or not path.startswith(f"/{kind.plural}/"):
            what = f"{request.kind.api_version} {request.kind.kind}"
            refusal = Violation(path="kind", reason=f"{what} has no rules at {path}")
            return admission_review.encode_response(request.uid, (refusal,))
        try:
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                if path.endswith("/mutate"):
                    return await self._mutate(request, kind)
                if path.endswith("/record"):
                    return await self._record(request)
                return await self._validate(request, kind)
        except errors.ExternalError as error:
            return self._unavailable(request, kind, error)
        except TimeoutError:
            why = f"the API server did not answer admission's own reads within {within_s:.1f} s"
            return self._unavailable(request, kind, errors.UnavailableError("review", why))

    async def _mutate(self, request: admission_review.ReviewRequest, kind: Kind[Any]) -> bytes:
        identity = await self._identity(request)
        with telemetry.span("admit", kind=kind.kind) as traceparent:
            document = request.object or {}
            before = request.old_object if request.operation == "UPDATE" else None
            additions: tuple[patch.Add, ...]
            if before:
                additions = self._reviewer.kept(
                    kind, document, before, request.namespace, self.claimed
                )
            else:
                additions = await self._reviewer.completed(
                    kind, document, request.namespace, traceparent, self.claimed
                )
            document = patch.applied(document, additions) if additions else document
            additions += self._reviewer.recorded(kind, document, before, identity, self.claimed)
        return admission_review.encode_response(request.uid, (), additions)

    async def _validate(self, request: admission_review.ReviewRequest, kind: Kind[Any]) -> bytes:
        document = (request.old_object if request.operation == "DELETE" else request.object) or {}
        before = request.old_object if request.operation == "UPDATE" else None
        identity = await self._identity(request)
        violations = await self._reviewer.violations(
            kind, request.operation, document, before, claimed=self.claimed, identity=identity
        )
        if kind == kinds.JOBS and request.operation == "CREATE":
            violations += await self._reviewer.absent(request.namespace, document, (), self.claimed)
        unknown: tuple[Violation, ...] = ()
        if request.operation != "DELETE":
            unknown = await self._reviewer.unknown_fields(kind, document, before, self.claimed)
        if self._rejects_unknown_fields:
            violations += unknown
        if not violations and request.operation != "DELETE" and not request.dry_run:
            violations = self._reviewer.reserve(kind, document, before, identity, self.claimed)
        user = request.user_info.username
        self._log.record(kind.kind, document, request.operation, user, "webhook", violations)
        if violations:
            return admission_review.encode_response(request.uid, violations)
        if identity.requester is not None and not request.dry_run:
            self._log.record_request(job_requests.written(kind, document, before, user, "webhook"))
        warnings = (
            *(each.message for each in unknown),
            *await self._reviewer.warnings(kind, document),
        )
        return admission_review.encode_response(request.uid, warnings=warnings)

    async def _record(self, request: admission_review.ReviewRequest) -> bytes:
        """Record the user who deletes a job. The deletion is always allowed: the API server checks
        the rights. A deletion by one of Stromboli's services is not recorded: no user requested it,
        or REST has recorded the user."""
        identity = await self._identity(request)
        if identity.requester is not None and not request.dry_run and request.operation == "DELETE":
            user = request.user_info.username
            self._log.record_request(
                job_requests.deletion(request.old_object or {}, user, "webhook")
            )
        return admission_review.encode_response(request.uid)

    def _unavailable(
        self, request: admission_review.ReviewRequest, kind: Kind[Any], error: errors.ExternalError
    ) -> bytes:
        refusal = Violation(path="", reason=str(error), expected="try again in a moment")
        document = request.object or request.old_object or {}
        user = request.user_info.username
        self._log.record(kind.kind, document, request.operation, user, "webhook", (refusal,))
        return admission_review.encode_response(request.uid, (refusal,), code=503)

    async def _identity(self, request: admission_review.ReviewRequest) -> reviewer.RequestIdentity:
        """The user of the request, and the user whose permissions apply. Writes of Stromboli's
        services belong to the submitter that they recorded on the object.
        """
        name = request.user_info.username
        is_ours = name in self._service_accounts or (
            self._authenticator is not None and name == await self._authenticator.own_username()
        )
        if not is_ours:
            return reviewer.RequestIdentity.user(name, request.user_info.groups or ())
        if request.operation != "CREATE" or request.kind.kind != kinds.JOBS.kind:
            return reviewer.UNKNOWN_IDENTITY
        metadata = kinds.metadata_of(msgspec.json.encode(request.object or {}))
        return reviewer.RequestIdentity(permissions.recorded(metadata))
