"""The HTTP endpoint for node agents: accepts reports and heartbeats of authenticated agents.

::

    PUT  /v1/nodes/{node}/topology                 the whole report
    POST /v1/nodes/{node}/topology/alive?digest=…  a heartbeat: 204, or 409 for *send the report*
    PUT  /v1/nodes/{node}/data                     the content of the node's data cache: 200 with
                                                   what the node should have (``DataWanted``)
    PUT  /v1/nodes/{node}/usage                    the loads of the node's disks and network
    PUT  /v1/nodes/{node}/podusage                 what the node's pods use: 200 with the uids of
                                                   pods that the agent knows by name (``PodUids``)

An agent authenticates with the token of its service account, for the audience of the monitor. It
may report only for the node of the pod to which the token is bound. TokenReview returns the node,
and before Kubernetes 1.30 the pod, whose node is then looked up.
"""

import asyncio
import contextlib
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from litestar import Litestar, Request, Response, post, put
from litestar.params import FromPath, QueryParameter
from litestar.types import ControllerRouterHandler

from stromboli.monitor.core import (
    data_reports,
    pod_usage_reports,
    report_budgets,
    reports,
    usage_reports,
)
from stromboli.monitor.settings import MonitorSettings
from stromboli.shared import envelope, errors
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster.accounts import Accounts, UnknownToken
from stromboli.shared.messages import base, node_usage
from stromboli.shared.runtime import runtime
from stromboli.shared.token_buckets import TokenBuckets

LARGEST_BYTES = 4 * 1024 * 1024
"""A machine of 512 CPUs and 16 GPUs with a hundred pods takes about 60 KB."""
USAGE_BYTES = 16 * 1024
"""Loads take about 200 bytes."""
TOKEN_KEPT_S = 300.0
"""How long an authenticated token is accepted without a new TokenReview."""
TOKENS_KEPT = 20_000
REVIEWS_PER_S, MOST_REVIEWS = 1.0, 20.0
"""Limits of reviews of unknown tokens from one address: rejected ones per second, and the burst,
which also counts reviews in progress. A review takes milliseconds."""
NODE_NAME = "authentication.kubernetes.io/node-name"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
APPENDED_WITHIN_S = 5.0
"""How long a report of pods waits for the log; then the agent keeps its values and repeats them."""
Put = Callable[[envelope.Draft | None], None]
Append = Callable[[envelope.Draft], Awaitable[None]]
Digest = Annotated[str, QueryParameter(name="digest")]


class ReportRejectedError(Exception):
    """A report was rejected. ``status``: the HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ActiveTerm(msgspec.Struct, frozen=True):
    """The state of the endpoint while this monitor is the leader. ``put``, ``put_data``,
    ``put_usage`` queue a draft for the topic of hardware, of data or of loads; ``is_there``: false
    if the node is known to be absent; ``reports``, ``data``, ``usage``: the reports so far;
    ``wanted``: the data that the scheduler wants on each node, read up to the end of its topic.
    ``append_pod_usage`` returns when the log has the draft; ``pod_uid``: the uid of a pod by
    namespace/name, empty if there is none.
    """

    put: Put
    is_there: Callable[[str], bool]
    reports: reports.NodeReports
    put_data: Put
    data: data_reports.DataReports
    wanted: data_reports.WantedData
    put_usage: Put
    usage: usage_reports.UsageReports
    append_pod_usage: Append
    pod_usage: pod_usage_reports.PodUsageReports
    pod_uid: Callable[[str], str]


class AgentReceiver:
    """Accepts reports of node agents. Without ``accounts``, for a single machine, the holder of
    ``token`` may report for every node; an empty token allows every client. ``budgets``: how much
    each node may publish.
    """

    def __init__(
        self,
        settings: MonitorSettings,
        accounts: Accounts | None,
        cluster: cluster_port.Cluster,
        clock: runtime.Clock,
        monotonic: Callable[[], float],
        *,
        token: str = "",
        budgets: report_budgets.ReportBudgets | None = None,
    ) -> None:
        self._known: ActiveTerm | None = None
        self._settings = settings
        self._accounts = accounts
        self._token = token
        self._cluster = cluster
        self._clock = clock
        self._monotonic = monotonic
        self._budgets = report_budgets.ReportBudgets() if budgets is None else budgets
        self._nodes: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        """Digest of a token -> its expiry in the cache, and its node."""
        self._reviews = TokenBuckets(REVIEWS_PER_S, MOST_REVIEWS, TOKENS_KEPT)

    @contextlib.contextmanager
    def open(self, term: ActiveTerm) -> Iterator[None]:
        """Accept requests until the block ends: this monitor is the leader, and its log is open.
        Other requests are answered with 503.
        """
        self._known = term
        try:
            yield
        finally:
            self._known = None

    def report(self, node: str, body: bytes) -> None:
        """Accept a whole report. Raises ReportRejectedError, ExternalError."""
        known = self._of_node(node)
        self._check_limits(node, body)
        try:
            topology = reports.read(body)
        except msgspec.DecodeError as error:
            raise ReportRejectedError(400, f"not a valid node report: {error}") from None
        digest = hashlib.blake2b(body, digest_size=16).hexdigest()
        draft = known.reports.report(node, topology, digest, self._clock())
        self._spend(node, body, draft)
        known.put(draft)

    def heartbeat(self, node: str, digest: str) -> None:
        """Accept a heartbeat. Raises ReportRejectedError (409: send the whole report),
        ExternalError.
        """
        known = self._of_node(node)
        if not known.reports.heartbeat(node, digest, self._clock()):
            raise ReportRejectedError(
                409, f"the monitor has another report of node {node}: send the whole report"
            )

    def report_usage(self, node: str, body: bytes) -> None:
        """Accept the loads of a node. Raises ReportRejectedError, ExternalError."""
        known = self._of_node(node)
        try:
            usage = usage_reports.read(body)
        except msgspec.DecodeError as error:
            raise ReportRejectedError(400, f"not a valid report of loads: {error}") from None
        known.put_usage(known.usage.report(node, usage, self._clock()))

    async def report_pod_usage(self, node: str, body: bytes) -> bytes:
        """Accept what the pods of a node use; returns the encoded ``PodUids``. When it returns, the
        log has the values. Raises ReportRejectedError, ExternalError."""
        known = self._of_node(node)
        try:
            report = pod_usage_reports.read(body)
        except msgspec.DecodeError as error:
            raise ReportRejectedError(400, f"not a valid report of pods: {error}") from None
        if report.pods:
            draft = known.pod_usage.accept(node, report, self._clock(), self._monotonic())
            if draft is None:
                raise ReportRejectedError(429, f"node {node} reports too often")
            try:
                async with asyncio.timeout(APPENDED_WITHIN_S):
                    await known.append_pod_usage(draft)
            except TimeoutError:
                raise errors.UnavailableError("log", "it did not take the report in time") from None
        uids = {name: known.pod_uid(name) for name in report.unknown_pods}
        present = {name: uid for name, uid in uids.items() if uid}
        return base.encode(node_usage.PodUids(uids=present))

    def exchange_data(self, node: str, body: bytes) -> bytes:
        """Accept the report of a data cache; returns the encoded ``DataWanted`` of its node.
        Raises ReportRejectedError, ExternalError.
        """
        known = self._of_node(node)
        self._check_limits(node, body)
        try:
            observed = data_reports.read(node, body)
        except msgspec.DecodeError as error:
            raise ReportRejectedError(400, f"not a valid report of data: {error}") from None
        wanted = known.wanted.of(node)
        if wanted is None:
            reason = known.wanted.unreadable.get(node, "")
            raise errors.UnavailableError(
                "monitor", f"the list of data for node {node} is unreadable: {reason}"
            )
        draft = known.data.report(node, observed, self._clock())
        self._spend(node, body, draft)
        known.put_data(draft)
        return base.encode(wanted)

    def _check_limits(self, node: str, body: bytes) -> None:
        """Raise ReportRejectedError for a body that is too large, and for a node whose budget is
        spent."""
        if len(body) > LARGEST_BYTES:
            raise ReportRejectedError(
                413, f"{len(body)} bytes, at most {LARGEST_BYTES} are allowed"
            )
        wait_s = self._budgets.wait_s(node, self._monotonic())
        if wait_s:
            reason = f"node {node} reports too much: its next report is accepted in {wait_s:.0f} s"
            raise ReportRejectedError(429, reason)

    def _spend(self, node: str, body: bytes, draft: envelope.Draft | None) -> None:
        if draft is not None:
            self._budgets.spend(node, len(body), self._monotonic())

    async def authenticate(self, node: str, token: str, peer: str) -> None:
        """Verify that an agent may report for a node. ``peer``: the address of the client. Raises
        ReportRejectedError, ExternalError."""
        self._now()
        if self._accounts is not None:
            speaks_for = await self._node_of(token, peer, self._accounts)
            if speaks_for != node:
                raise ReportRejectedError(
                    403, f"this agent runs on node {speaks_for} and cannot report for node {node}"
                )
        elif not hmac.compare_digest(token.encode(), (self._token or token).encode()):
            raise ReportRejectedError(401, "the bearer token is not the token of this monitor")
        self._of_node(node)

    def _of_node(self, node: str) -> ActiveTerm:
        known = self._now()
        if not known.is_there(node):
            raise ReportRejectedError(404, f"the cluster has no node {node}")
        return known

    def _now(self) -> ActiveTerm:
        if self._known is None:
            raise errors.UnavailableError("monitor", "this monitor is not the leader: retry later")
        return self._known

    async def _node_of(self, token: str, peer: str, accounts: Accounts) -> str:
        if not token:
            raise ReportRejectedError(
                401, "send the service account's token: Authorization: Bearer ..."
            )
        named = hashlib.blake2b(token.encode(), digest_size=16).digest()
        kept = self._nodes.get(named)
        if kept is not None and self._monotonic() < kept[0]:
            return kept[1]
        if kept is None:
            self._begin_review(peer)
        returned = 1.0 if kept is None else 0.0
        try:
            node = await self._review(token, accounts)
        except ReportRejectedError:
            self._nodes.pop(named, None)
            returned = 0.0
            raise
        finally:
            self._reviews.spend(peer, -returned, self._monotonic())
        self._nodes[named] = (self._monotonic() + TOKEN_KEPT_S, node)
        if len(self._nodes) > TOKENS_KEPT:
            self._nodes.popitem(last=False)
        return node

    def _begin_review(self, peer: str) -> None:
        """Raise ReportRejectedError if this peer has sent too many tokens that were rejected, or
        that are being reviewed. Otherwise a flood of invalid tokens would occupy the requests that
        this process may have at the API server, and delay new agents and the watches."""
        wait_s = self._reviews.take(peer, self._monotonic())
        if wait_s:
            reason = f"too many unknown tokens from {peer}: the next is reviewed in {wait_s:.1f} s"
            raise ReportRejectedError(429, reason)

    async def _review(self, token: str, accounts: Accounts) -> str:
        """The node of the pod to which a token of an agent is bound."""
        user = await accounts.authenticate(token, (self._settings.agents_audience,))
        if isinstance(user, UnknownToken):
            raise ReportRejectedError(401, user.reason)
        namespace, _, account = self._settings.agents_account.partition("/")
        if user.name != f"system:serviceaccount:{namespace}:{account}":
            raise ReportRejectedError(
                403,
                f"{user.name} is not the account of agents, {namespace}/{account} "
                "(STROM_MONITOR_AGENTS_ACCOUNT)",
            )
        return await self._bound_to(namespace, user.extra)

    async def _bound_to(self, namespace: str, extra: Mapping[str, tuple[str, ...]]) -> str:
        nodes, pods, uids = (extra.get(key, ()) for key in (NODE_NAME, POD_NAME, POD_UID))
        if len(nodes) == 1:
            return nodes[0]
        if len(pods) != 1 or len(uids) != 1:
            raise ReportRejectedError(
                403, "the token is not bound to a pod: mount a projected token"
            )
        try:
            pod: core.Pod = kinds.PODS.decode(
                await self._cluster.get(kinds.PODS, namespace, pods[0])
            )
        except errors.NotFoundError:
            raise ReportRejectedError(
                403, f"the token's pod {namespace}/{pods[0]} is deleted"
            ) from None
        if pod.metadata.uid != uids[0] or not pod.spec.node_name:
            raise ReportRejectedError(403, f"the token's pod {namespace}/{pods[0]} is deleted")
        return pod.spec.node_name


def routes(agents: AgentReceiver) -> list[ControllerRouterHandler]:
    """The HTTP routes for node agents."""

    async def received(node: str, request: Request[Any, Any, Any]) -> bytes:
        """The body, which is read only if the token permits it: any client that reaches the port
        could fill the memory with bodies otherwise."""
        await authenticate(node, request)
        return await request.body()

    async def authenticate(node: str, request: Request[Any, Any, Any]) -> None:
        peer = request.client.host if request.client else ""
        await agents.authenticate(node, _token(request), peer)

    @put(
        "/v1/nodes/{node:str}/topology",
        include_in_schema=False,
        status_code=204,
        request_max_body_size=LARGEST_BYTES,
    )
    async def report(node: FromPath[str], request: Request[Any, Any, Any]) -> None:
        agents.report(node, await received(node, request))

    @post("/v1/nodes/{node:str}/topology/alive", include_in_schema=False, status_code=204)
    async def heartbeat(
        node: FromPath[str], request: Request[Any, Any, Any], digest: Digest
    ) -> None:
        await authenticate(node, request)
        agents.heartbeat(node, digest)

    @put(
        "/v1/nodes/{node:str}/data",
        include_in_schema=False,
        status_code=200,
        request_max_body_size=LARGEST_BYTES,
    )
    async def data(node: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
        answer = agents.exchange_data(node, await received(node, request))
        return Response(answer, media_type="application/json")

    @put(
        "/v1/nodes/{node:str}/usage",
        include_in_schema=False,
        status_code=204,
        request_max_body_size=USAGE_BYTES,
    )
    async def usage(node: FromPath[str], request: Request[Any, Any, Any]) -> None:
        agents.report_usage(node, await received(node, request))

    @put(
        "/v1/nodes/{node:str}/podusage",
        include_in_schema=False,
        status_code=200,
        request_max_body_size=pod_usage_reports.LARGEST_BYTES,
    )
    async def pod_usage(node: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
        answer = await agents.report_pod_usage(node, await received(node, request))
        return Response(answer, media_type="application/json")

    return [report, heartbeat, data, usage, pod_usage]


def app(agents: AgentReceiver) -> Litestar:
    """The Litestar application for node agents."""
    return Litestar(
        routes(agents),
        openapi_config=None,
        logging_config=None,
        exception_handlers=HANDLERS,
    )


def _token(request: Request[Any, Any, Any]) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _refused(_: Request[Any, Any, Any], error: ReportRejectedError) -> Response[str]:
    return Response(f"{error}\n", status_code=error.status, media_type="text/plain")


def _away(_: Request[Any, Any, Any], error: errors.ExternalError) -> Response[str]:
    return Response(f"{error}\n", status_code=503, media_type="text/plain")


HANDLERS: dict[Any, Any] = {ReportRejectedError: _refused, errors.ExternalError: _away}
