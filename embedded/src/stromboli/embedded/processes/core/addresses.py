"""Addresses in 127.0.0.0/8 and their host names.

Every pod has its own loopback address, so that pods can listen on the same port. The address is
derived from the uid: a pod keeps its address, and two systems on one machine rarely collide.
"""

import hashlib
from collections.abc import Collection, Iterable

import msgspec

from stromboli.embedded.processes.core.pod import HostAlias


class PodAddress(msgspec.Struct, frozen=True):
    """The address of a pod, and the names that resolve to it."""

    namespace: str
    hostname: str
    subdomain: str
    address: str


def address(uid: str, used_addresses: Collection[str]) -> str:
    """Return a free address: never one ending in 0 or 255, nor in 127.0.0.0/16, which other
    programs use.
    """
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8])
    while True:
        second, third, fourth = 1 + number // 254 // 256 % 254, number // 254 % 256, number % 254
        candidate = f"127.{second}.{third}.{fourth + 1}"
        if candidate not in used_addresses:
            return candidate
        number += 1


def hosts_file(
    own: PodAddress, others: Iterable[PodAddress], aliases: Iterable[HostAlias], machine: str
) -> str:
    """Return a hosts file: the pod itself, the pods of its namespace with a subdomain under the
    names of their headless Service, and the machine's own entries (``machine``).

    A name resolves as soon as the pod has its address, ready or not.
    """
    lines = ["# written by Stromboli; the machine's own file follows"]
    lines.append(f"{own.address}\t{' '.join([*_names(own), own.hostname])}")
    ours = {each for each in others if each.namespace == own.namespace and each.subdomain}
    order = sorted(ours - {own}, key=lambda it: (it.subdomain, it.hostname, it.address))
    lines += [f"{each.address}\t{' '.join(_names(each))}" for each in order]
    lines += [f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in aliases]
    return "\n".join(lines) + "\n\n" + machine


def lookup_order(text: str) -> str | None:
    """Return ``nsswitch.conf`` with the hosts file first; None if that changes nothing.

    A system resolver listed first would answer from the machine's own hosts file, negative answers
    included.
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
