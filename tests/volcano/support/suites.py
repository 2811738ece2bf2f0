"""Runs one of Volcano's suites, and compares its results with the expectations of this repository.

``expectations.toml`` has a row for each spec that does not pass, with its reason. A spec that fails
without a row is an error, and so is a row whose spec passes or does not exist.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stromboli.shared import decoding

EXPECTATIONS = Path(__file__).parents[1] / "expectations.toml"
REASONS = {
    "text": "the same objects are accepted and rejected; a message has other words",
    "deliberate": "Stromboli behaves otherwise on purpose: see docs/deviations.md",
    "parts": "needs what the system of these tests has not; not run",
    "upstream": "contradicts Volcano's own code, and fails there too",
    "race": "reads an object once, soon after a change that it does not wait for; may pass",
    "defect": "an open defect of Stromboli",
}
TEXT, NOT_RUN, MAY_PASS = "text", "parts", "race"
COMPARES = "to contain substring"
"""In the message of a spec that compares a text."""
IMPORTED = r"\[sig-.*\]"
"""Specs of Kubernetes' own suites, which some suites import."""
PROCESSES = {"admission": 4, "cronjob": 9, "jobp": 4}
"""Suite -> how many of its specs run at once. Those of other suites fill the whole cluster."""
FAILED = frozenset({"failed", "panicked", "timedout", "interrupted", "aborted"})


class Row(msgspec.Struct, frozen=True):
    """A spec that does not pass. ``spec``: its full text; ``why``: in words."""

    spec: str
    reason: str
    why: str


class _Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Specs with one reason, as the file has them."""

    reason: str
    why: str
    specs: tuple[str, ...]


class Spec(msgspec.Struct, frozen=True):
    """A spec as Ginkgo reports it. ``text``: of its containers and itself."""

    text: str
    state: str
    seconds: float
    message: str


def expectations(suite: str, file: Path = EXPECTATIONS) -> list[Row]:
    """The rows of a suite. Raises msgspec.ValidationError for a row that is not one."""
    rows = decoding.convert(tomllib.loads(file.read_text()).get(suite, []), list[_Rows])
    for each in rows:
        if each.reason not in REASONS:
            raise msgspec.ValidationError(f"{suite}: no reason {each.reason!r}: {each.why}")
    return [Row(spec, each.reason, each.why) for each in rows for spec in each.specs]


def suites_with_rows(file: Path = EXPECTATIONS) -> set[str]:
    """The names of suites in the file, including names that are none."""
    return set(tomllib.loads(file.read_text()))


async def run(
    binary: Path, folder: Path, kubeconfig: Path, rows: Iterable[Row], focus: str
) -> list[Spec]:
    """Run a suite in an existing folder, and return its specs. ``focus``: only specs whose text
    matches; empty: all. Raises RuntimeError if it ends without a report."""
    report, output = folder / "report.json", folder / "output.txt"
    # Ginkgo matches the text between the name of the suite and labels.
    not_run = "|".join(re.escape(row.spec) for row in rows if row.reason == NOT_RUN)
    skipped = [IMPORTED, *([rf"({not_run})($| \[)"] if not_run else [])]
    arguments = ["--no-color", f"--procs={PROCESSES.get(binary.stem, 1)}", "--timeout=6h"]
    arguments += [f"--output-dir={folder}", f"--json-report={report.name}"]
    arguments += [f"--skip={'|'.join(skipped)}", *([f"--focus={focus}"] if focus else [])]
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "VC_BIN": str(binary.parent),
        "ARTIFACTS_PATH": str(folder / "artifacts"),
    }
    with output.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            binary.parent / "ginkgo",
            *arguments,
            binary,
            cwd=folder,
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:  # Ginkgo would wait for the specs that run
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    return read(report)


def read(report: Path) -> list[Spec]:
    """The specs of Ginkgo's report. Raises RuntimeError if there is none."""
    if not report.exists():
        raise RuntimeError(f"the suite ended without a report: see output.txt in {report.parent}")
    (reported,) = decoding.from_json(report.read_bytes(), list[dict[str, Any]])
    specs = [_spec(it) for it in reported["SpecReports"] or () if it["LeafNodeType"] == "It"]
    return [spec for spec in specs if not re.match(IMPORTED, spec.text)]


def _spec(reported: Mapping[str, Any]) -> Spec:
    containers = reported["ContainerHierarchyTexts"] or ()
    text = " ".join([*containers, reported["LeafNodeText"]])
    failure = reported.get("Failure") or {}
    place = failure.get("FailureNodeLocation") or failure.get("Location") or {}
    message = failure.get("Message", "")
    if message:
        message = f"{Path(place.get('FileName', '')).name}:{place.get('LineNumber', 0)}: {message}"
    return Spec(text, reported["State"], reported["RunTime"] / 1e9, message)


def problems(specs: Iterable[Spec], rows: Sequence[Row]) -> list[str]:
    """What differs from the expectations. Specs that were not run meet every expectation."""
    expected = {row.spec for row in rows}
    flaky = {row.spec for row in rows if row.reason == MAY_PASS}
    texts = {row.spec for row in rows if row.reason == TEXT}
    states: dict[str, str] = {}
    found = []
    for spec in specs:
        if states.get(spec.text) not in FAILED:
            states[spec.text] = spec.state
        if spec.text in texts and spec.state in FAILED and COMPARES not in spec.message:
            found.append(f"fails, and not for a text: {spec.text}")
    found += [f"no such spec: {text}" for text in expected - states.keys()]
    for text, state in states.items():
        if state in FAILED and text not in expected:
            found.append(f"{state}, and no row says why: {text}")
        if state == "passed" and text in expected - flaky:
            found.append(f"passes, remove its row: {text}")
    return sorted(found)


def report(suite: str, specs: Iterable[Spec], rows: Iterable[Row]) -> str:
    """The results as text: a line of counts, then a line for each spec, and the message of each
    failure."""
    reasons = {row.spec: f"{row.reason}: {row.why}" for row in rows}
    specs = sorted(specs, key=lambda spec: (spec.state, spec.text))
    counts = Counter(spec.state for spec in specs)
    lines = [f"{suite}: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
    for spec in specs:
        lines.append(f"{spec.state:<8} {spec.seconds:6.1f} s  {spec.text}")
        if spec.text in reasons:
            lines.append(f"    expected, {reasons[spec.text]}")
        if spec.message:
            lines += [f"    {line}" for line in spec.message.splitlines()[:12]]
    return "\n".join(lines) + "\n"
