"""A test that never ends fails by itself, also where the loop takes no notice of signals."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANGING = """
import asyncio

async def test_that_never_ends():
    await asyncio.Event().wait()
"""


def test_a_hanging_test_fails_with_its_stack(tmp_path: Path) -> None:
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text(HANGING)
    pytest = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", "pyproject.toml"]
    command = [*pytest, "--timeout", "4", "-p", "no:cacheprovider", str(hanging)]
    ran = subprocess.run(
        command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=280
    )
    assert (ran.returncode, "1 failed" in ran.stdout) == (1, True), ran.stdout
    assert "in test_that_never_ends\n    await asyncio.Event().wait()" in ran.stdout
