"""How KWOK plays the containers of Volcano's suites: as slowly as a kubelet, and to the end that
the command of the first container describes.

The suites use shells, servers and programs of their images. A server and a container without a
command run on. Any other command takes as long as its ``sleep``s say, else a second. It fails with
the code of its ``exit``, or with 127 if it names a program that no image has.
"""

from pathlib import Path
from typing import Any

import yaml

from stromboli.testkit.parts import kwok

Document = dict[str, Any]
STARTS = '(if (.spec.containers[0].image | test("rayproject")) then "10s" else "1s" end)'
"""How long a kubelet takes at least from a bound pod to its first container: Ray's image has two
gigabytes."""
GOES_MS = 1000
COMMAND = '(.spec.containers[0] | (.command // []) + (.args // []) | join(" "))'
SHELL = '(.spec.containers[0].image | test("busybox"))'
"""Its image runs a shell without input, which ends."""
SERVER = r"sshd -D|--block|infinity|^$"
ABSENT = r"\bxxx\b|\bxyz\b|fake\.sh"
CODES = (1, 2, 3)
SECONDS = f'({COMMAND} | [scan("sleep ([0-9]+)") | .[0] | tonumber] | add // 1 | tostring) + "s"'


def write(path: Path) -> Path:
    """Write KWOK's stages to a file and return it."""
    stages = {it["metadata"]["name"]: it for it in yaml.safe_load_all(kwok.STAGES.read_text())}
    end = stages.pop("pod-ends")
    stages["pod-runs"]["spec"]["delay"] = {"durationFrom": {"expressionFrom": STARTS}}
    stages["pod-goes"]["spec"]["delay"] = {"durationMilliseconds": GOES_MS}
    path.write_text(yaml.safe_dump_all([*stages.values(), *_ends(end)]))
    return path


def _ends(end: Document) -> list[Document]:
    ran = f'({COMMAND} | test("{_escaped(SERVER)}") | not) or ({SHELL} and {COMMAND} == "")'
    codes = {code: rf"exit {code}\b" for code in CODES} | {127: ABSENT}
    failed = "|".join(codes.values())
    ends = [_end(end, 0, f'({ran}) and ({COMMAND} | test("{_escaped(failed)}") | not)')]
    for code, pattern in codes.items():
        ends.append(_end(end, code, f'{COMMAND} | test("{_escaped(pattern)}")'))
    return ends


def _end(end: Document, code: int, condition: str) -> Document:
    """The stage of an end with an exit code. A container that its pod's policy starts again is left
    running."""
    policies = ["Never"] if code else ["Never", "OnFailure"]
    template = end["spec"]["next"]["statusTemplate"]
    given = (
        '{{ $code := index .metadata.annotations "stromboli.sh/exit-code" | default "0" | int }}'
    )
    assert given in template
    expressions = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": ".spec.restartPolicy", "operator": "In", "values": policies},
        {"key": f"select({condition})", "operator": "Exists"},
    ]
    return {
        **{key: end[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": f"pod-ends-{code}"},
        "spec": {
            "resourceRef": end["spec"]["resourceRef"],
            "selector": {"matchExpressions": expressions},
            "delay": {"durationFrom": {"expressionFrom": SECONDS}},
            "next": {"statusTemplate": template.replace(given, f"{{{{ $code := {code} }}}}")},
        },
    }


def _escaped(pattern: str) -> str:
    """A pattern within a string of KWOK's query language."""
    return pattern.replace("\\", "\\\\")
