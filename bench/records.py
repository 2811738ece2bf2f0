"""``python -m bench.records``: CPU time per record of a pod in the monitor, without the broker.

Pods as an API server returns them, each in three versions (created, bound, running), are observed,
become records of ``cluster.pods``, and are copied to ``cluster.changes``. The last line of stdout
is the result as one JSON object: CPU microseconds of each step per record, best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec

from stromboli.monitor import history
from stromboli.monitor.core.reflector_state import ReflectorState
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.testkit import builders, served_pods

PODS = 1_000


def versions(name: str, at: int) -> list[bytes]:
    """The three versions of one pod, as JSON."""
    pod = builders.make_pod(name, "gang", cpu="1", memory="64Mi")
    made: list[bytes] = []
    for phase, node in (("Pending", ""), ("Pending", "n1"), ("Running", "n1")):
        document = served_pods.document(pod)
        document["metadata"]["resourceVersion"] = str(3 * at + len(made) + 1)
        document["spec"] |= {"nodeName": node} if node else {}
        document["status"] = {"phase": phase}
        made.append(msgspec.json.encode(document))
    return made


def measured() -> dict[str, float]:
    """CPU microseconds per record."""
    raw = [version for at in range(PODS) for version in versions(f"g-{at}", at)]
    state = ReflectorState(kinds.PODS)
    state.list_begins()
    state.list_ends("0", builders.NOON)
    took: dict[str, float] = {}

    def step(name: str, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        begun = time.process_time()
        done = [work(item) for item in items]
        took[name] = (time.process_time() - begun) * 1e6 / len(raw)
        return done

    drafts = step("observe", lambda each: state.upsert(each, builders.NOON), raw)
    sealed = step("seal", _seal, drafts)
    records = [
        envelope.Record(topics.PODS, at, draft.key, value, headers)
        for at, (draft, (headers, value)) in enumerate(zip(drafts, sealed, strict=True))
    ]
    step("history", lambda each: _seal(history._copy(each, builders.NOON)), records)
    return took


def _seal(draft: envelope.Draft) -> tuple[dict[str, str], bytes | None]:
    return envelope.seal(draft, "monitor", 1, 1, cluster_name="default")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.records", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = [measured() for _ in range(parser.parse_args().rounds)]
    best = {name: round(min(each[name] for each in rounds), 1) for name in rounds[0]}
    print(json.dumps({**best, "together": round(sum(best.values()), 1)}))


if __name__ == "__main__":
    main()
