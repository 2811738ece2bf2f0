"""Addresses in 127.0.0.0/8 and the names that go with them.

Every pod has an address of its own on the machine's loopback, so that pods may listen on the same
port. It is drawn from the pod's uid: the same pod has the same one again, and two systems on one
machine hardly ever draw the same.
"""

import hashlib
from collections.abc import Collection, Iterable

import msgspec

from stromboli.embedded.processes.core.pod import HostAlias


class PodAddress(msgspec.Struct, frozen=True):
    """A pod that has an address."""

    namespace: str
    hostname: str
    subdomain: str
    address: str


def address(uid: str, taken: Collection[str]) -> str:
    """A free address: never one that ends in 0 or 255, nor in 127.0.0.0/16, where others live."""
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8])
    while True:
        second, third, fourth = 1 + number // 254 // 256 % 254, number // 254 % 256, number % 254
        found = f"127.{second}.{third}.{fourth + 1}"
        if found not in taken:
            return found
        number += 1


def hosts_file(
    own: PodAddress, others: Iterable[PodAddress], aliases: Iterable[HostAlias], machine: str
) -> str:
    """A hosts file: the pod itself, those of its namespace that have a subdomain, as its headless
    Service would name them, and what the machine's own file says (``machine``).

    A name counts as soon as the pod has its address, ready or not.
    """
    lines = ["# written by Stromboli; the machine's own file follows"]
    lines.append(f"{own.address}\t{' '.join([*_names(own), own.hostname])}")
    ours = {each for each in others if each.namespace == own.namespace and each.subdomain}
    order = sorted(ours - {own}, key=lambda it: (it.subdomain, it.hostname, it.address))
    lines += [f"{each.address}\t{' '.join(_names(each))}" for each in order]
    lines += [f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in aliases]
    return "\n".join(lines) + "\n\n" + machine


def lookup_order(text: str) -> str | None:
    """The machine's ``nsswitch.conf`` with the hosts file first; None if that is so already.

    Where a resolver of the system's is asked first, it answers from the machine's own file and
    what it does not know is an answer too.
    """
    lines = text.splitlines()
    for index, line in enumerate(lines):
        kind, _, rest = line.partition(":")
        if kind.strip() == "hosts":
            words = rest.split()
            if words[:1] == ["files"]:
                return None
            rest = " ".join(word for word in words if word != "files")
            lines[index] = f"hosts: files {rest}"
            return "\n".join(lines) + "\n"
    return None


def _names(pod: PodAddress) -> list[str]:
    if not pod.subdomain:
        return []
    domain = f"{pod.subdomain}.{pod.namespace}.svc"
    short = f"{pod.hostname}.{pod.subdomain}"
    own = [f"{pod.hostname}.{domain}.cluster.local", f"{pod.hostname}.{domain}"]
    return [*own, f"{short}.{pod.namespace}", short, f"{domain}.cluster.local", pod.subdomain]
