"""The node agent of a real kubelet as a process of this machine, with a token as the kubelet mounts
it into the agent's pod."""

import json
from pathlib import Path

from stromboli.testkit.parts.container_images import BUSYBOX
from stromboli.testkit.parts.node_agent import NodeAgent
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, shell

ENVIRONMENT = {"STROM_MONITOR_AGENTS_ACCOUNT": "default/agents"}
"""Settings of the services."""


def agent_of(system: KubeletSystem, node: str, state: Path, sysfs: Path, driver: Path) -> NodeAgent:
    """The agent of a node, to be started. It sees the tree ``sysfs`` and the GPU driver's answers
    in ``driver``."""
    token = state / "agent.token"
    token.write_text(_token(system, node))
    return NodeAgent(
        state / "agent",
        node,
        system.agents_url,
        token,
        kubelet=system.node(node).folder,
        sysfs=sysfs,
        driver=driver,
    )


def _token(system: KubeletSystem, node: str) -> str:
    container = {
        "name": "agent",
        "image": BUSYBOX,
        "command": shell(FOREVER),
        "imagePullPolicy": "Never",
    }
    spec = {
        "nodeName": node,
        "serviceAccountName": "agents",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": spec}
    system.kubectl("create", "serviceaccount", "agents")
    system.kubectl("create", "--filename=-", stdin=json.dumps(pod))
    bound = ("--bound-object-kind=Pod", "--bound-object-name=agent")
    audience = ("--audience=stromboli-monitor", "--duration=2h")
    return system.kubectl("create", "token", "agents", *bound, *audience).strip()
