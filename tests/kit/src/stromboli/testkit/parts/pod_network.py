"""The network of the pods of real kubelets: one bridge for all nodes, or one for each node with a
link of limited rate between them."""

import dataclasses
import secrets
import subprocess
from pathlib import Path

from stromboli.testkit.parts.kubernetes import API_SERVICE_ADDRESS, SERVICE_ADDRESSES

BURST = "64kb"
"""Bytes that a link takes at once: as large as the segments that interfaces pass on."""
LONGEST_QUEUE = "100ms"


@dataclasses.dataclass(frozen=True)
class Network:
    """The bridge of the pods of all nodes; the parent cgroup has the same ``name``. With a
    ``link_rate``, each further node has a bridge of its own behind a link of this rate."""

    name: str
    third_byte: int
    addresses: Path
    nodes: int = 1
    link_rate: str = ""

    @property
    def gateway(self) -> str:
        """The bridge's own address, on which kubelets listen."""
        return f"100.100.{self.third_byte}.1"

    def bridge(self, number: int) -> str:
        """The bridge of a node's pods; nodes are counted from 0."""
        return f"{self.name}-{number}" if number and self.link_rate else self.name

    @property
    def interfaces(self) -> tuple[str, ...]:
        """What ``add`` creates, without the other ends of links."""
        further = range(1, self.nodes) if self.link_rate else ()
        links = tuple(self._link(number)[0] for number in further)
        return (*links, *(self.bridge(number) for number in further), self.name)

    def cni(self, number: int) -> dict[str, object]:
        """The configuration of the CNI plugin ``bridge`` on a node."""
        subnet = f"100.100.{self.third_byte}.0/24"
        ipam = {
            "type": "host-local",
            "dataDir": str(self.addresses),
            "ranges": [[{"subnet": subnet, "gateway": self.gateway}]],
            "routes": [{"dst": SERVICE_ADDRESSES}],
        }
        return {
            "cniVersion": "1.0.0",
            "name": self.name,
            "type": "bridge",
            "bridge": self.bridge(number),
            "ipam": ipam,
        }

    def add(self) -> None:
        """Create the bridges and links. Raises CalledProcessError."""
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "address", "add", f"{self.gateway}/24", "dev", self.name)
        run("ip", "address", "add", f"{API_SERVICE_ADDRESS}/32", "dev", self.name)
        run("ip", "link", "set", self.name, "up")
        for number in range(1, self.nodes) if self.link_rate else ():
            ends = self._link(number)
            run("ip", "link", "add", self.bridge(number), "type", "bridge")
            run("ip", "link", "set", self.bridge(number), "up")
            run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for end, bridge in zip(ends, (self.name, self.bridge(number)), strict=True):
                run("ip", "link", "set", end, "master", bridge, "up")
                bucket = ("rate", self.link_rate, "burst", BURST, "latency", LONGEST_QUEUE)
                run("tc", "qdisc", "add", "dev", end, "root", "tbf", *bucket)

    def carried_bytes(self) -> int:
        """Bytes that links have carried, in both directions."""
        total = 0
        for number in range(1, self.nodes) if self.link_rate else ():
            statistics = Path("/sys/class/net", self._link(number)[0], "statistics")
            total += sum(int((statistics / f"{way}_bytes").read_text()) for way in ("tx", "rx"))
        return total

    def _link(self, number: int) -> tuple[str, str]:
        """The ends of a node's link: that at the first node's bridge, and that at its own."""
        return f"{self.name}l{number}", f"{self.name}r{number}"


def run(*command: str) -> str:
    """Run a command; return its output. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def free_third_byte() -> int:
    """The third byte x of a network 100.100.x.0/24 that no interface of this machine uses: a random
    one, since a run that starts at the same time adds its bridge later than it calls this."""
    taken = run("ip", "-4", "-o", "address", "show")
    return secrets.choice([each for each in range(1, 255) if f" 100.100.{each}." not in taken])
