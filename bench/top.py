"""``strom top``: CPU time of a refresh with 10,000 jobs, without the request.

    python -m bench.top [--jobs N]

The scheduler's input is prepared: a PodGroup with one pod for each job, half of them on 500 nodes.
A refresh decodes it, adds up usage and lays out a screen of 50 lines. The least of five CPU times.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from stromboli.cli.commands import top
from stromboli.cli.render import usage
from stromboli.testkit import builders

NODES, QUEUES, RUNS = 500, 20, 5
WIDTH, HEIGHT = 200, 50


def manifests(jobs: int) -> Iterator[msgspec.Raw]:
    """The objects that the scheduler reads."""

    def of(kind: str, found: Any) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode({"kind": kind} | msgspec.to_builtins(found)))

    gpus = {usage.GPU: "8"}
    for number in range(NODES):
        yield of("Node", builders.make_node(f"n{number}", cpu="64", memory="256Gi", extra=gpus))
    for number in range(QUEUES):
        yield of("Queue", builders.make_queue(f"q{number}"))
    for number in range(jobs):
        is_bound = number % 2 == 0
        yield of(
            "PodGroup",
            builders.make_pod_group(
                f"g{number}",
                queue=f"q{number % QUEUES}",
                phase="Running" if is_bound else "Inqueue",
            ),
        )
        yield of(
            "Pod",
            builders.make_pod(
                f"p{number}",
                f"g{number}",
                node=f"n{number % NODES}" if is_bound else "",
                phase="Running" if is_bound else "Pending",
                extra={usage.GPU: "1"},
            ),
        )


def refresh(items: list[msgspec.Raw], what: str) -> None:
    """All that a refresh does after the request."""
    objects = usage.read(items)
    if what == "queues":
        headers, rows = usage.queues(objects)
    elif what == "jobs":
        headers, rows = usage.jobs(objects, builders.NOON)
    else:
        headers, rows = usage.nodes(objects)
    top.screen(usage.headline(objects), headers, rows, WIDTH, HEIGHT)


def main() -> None:
    """Print the CPU seconds of a refresh of each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    items = list(manifests(parser.parse_args().jobs))
    for what in ("queues", "jobs", "nodes"):
        times = []
        for _ in range(RUNS):
            began = time.process_time()
            refresh(items, what)
            times.append(time.process_time() - began)
        print(f"{what}: {min(times):.2f} s")


if __name__ == "__main__":
    main()
