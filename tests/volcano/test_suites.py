"""Volcano's own end-to-end suites against our services: the objects that its users have, checked by
its own developers' rules.

``make test-volcano`` runs them, one system for each suite. ``STROM_VOLCANO_FOCUS`` is a pattern of
Ginkgo: only matching specs run. The results are in ``.volcano-report/SUITE.txt``.
"""

import os
from pathlib import Path

import pytest

from tests.volcano.support import suite_system, suites
from tools.real import volcano

REPORTS = Path(__file__).parents[2] / ".volcano-report"

pytestmark = [pytest.mark.volcano, pytest.mark.timeout(0)]


@pytest.mark.parametrize("suite", volcano.SUITES)
async def test_specs_pass_except_those_with_a_reason(
    suite: str, volcano_suites: Path, tmp_path: Path
) -> None:
    rows = suites.expectations(suite)
    binary = volcano_suites / f"{suite}.test"
    focus = os.environ.get("STROM_VOLCANO_FOCUS", "")
    async with suite_system.running(tmp_path, suite, volcano_suites) as system:
        specs = await suites.run(binary, tmp_path, system.parts.kubeconfig, rows, focus)
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{suite}.txt").write_text(suites.report(suite, specs, rows))
    assert not suites.problems(specs, rows)
