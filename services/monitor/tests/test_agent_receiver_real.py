"""A real API server identifies the node of an agent's token."""

import time

import pytest

from services.monitor.tests import active_terms
from stromboli.monitor import agent_receiver
from stromboli.monitor.settings import MonitorSettings
from stromboli.shared import envelope
from stromboli.shared.cluster.kubernetes import (
    KubernetesAccounts,
    KubernetesCluster,
    KubernetesSettings,
)
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects, tenants
from stromboli.testkit.parts import real
from stromboli.testkit.parts.api import Api

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]
SETTINGS = MonitorSettings(agents_account="default/agents")


async def agent_token(api: Api, node: str) -> str:
    """As the kubelet of this node mounts it into the agent's pod."""
    await api.create("/api/v1/nodes", {"metadata": {"name": node}})
    spec = {
        "nodeName": node,
        "serviceAccountName": "agents",
        "containers": [{"name": "agent", "image": "agent"}],
    }
    pods = "/api/v1/namespaces/default/pods"
    pod = await api.create(pods, {"metadata": {"name": node}, "spec": spec})
    bound = {"apiVersion": "v1", "kind": "Pod", "name": node, "uid": pod["metadata"]["uid"]}
    requested = {
        "audiences": [SETTINGS.agents_audience],
        "expirationSeconds": tenants.TOKEN_S,
        "boundObjectRef": bound,
    }
    path = "/api/v1/namespaces/default/serviceaccounts/agents/token"
    node_reports = await api.create(path, {"spec": requested})
    return str(node_reports["status"]["token"])


async def test_a_token_is_valid_only_for_the_node_of_its_pod(real_parts: real.RealParts) -> None:
    node = objects.unique("agent")
    drafts: list[envelope.Draft | None] = []
    kubeconfig = KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    async with real_parts.client() as api, KubernetesCluster(kubeconfig) as cluster:
        await tenants.create_account(api, "default", "agents")
        token = await agent_token(api, node)
        agent_server = agent_receiver.AgentReceiver(
            SETTINGS, KubernetesAccounts(cluster), cluster, runtime.utc_now, time.monotonic
        )
        with agent_server.open(active_terms.publishing_to(drafts)):
            await agent_server.authenticate(node, token, "192.0.2.1")
            agent_server.report(node, b"{}")
            with pytest.raises(
                agent_receiver.ReportRejectedError, match="cannot report for node another"
            ):
                await agent_server.authenticate("another", token, "192.0.2.1")
            loose = await tenants.token(api, "default", "agents", SETTINGS.agents_audience)
            with pytest.raises(agent_receiver.ReportRejectedError, match="not bound to a pod"):
                await agent_server.authenticate(node, loose, "192.0.2.1")
    assert [draft.key for draft in drafts if draft is not None] == [node]
