"""Files of ``changes/``: towncrier makes the changelog of a release from them, and skips others."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
FILES = sorted(it for it in (ROOT / TOWNCRIER["directory"]).iterdir() if it.name != "README.md")


def test_the_name_of_each_file_has_a_known_type() -> None:
    types = "|".join(it["directory"] for it in TOWNCRIER["type"])
    known = re.compile(rf"\+[a-z0-9-]+\.({types})\.md")
    assert [it.name for it in FILES if not known.fullmatch(it.name)] == []


def test_each_file_is_part_of_the_next_changelog(tmp_path: Path) -> None:
    """Also one that is added here, so that the test does not depend on the others."""
    changes = tmp_path / TOWNCRIER["directory"]
    changes.mkdir()
    for each in FILES:
        (changes / each.name).write_text(each.read_text())
    (changes / "+example.fixed.md").write_text("A gang waited for nothing.")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text())
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9"]
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    before, after = (folder / "CHANGELOG.md" for folder in (ROOT, tmp_path))
    made = after.read_text()
    assert "## 9.9.9" in made
    assert (
        made.index("## 9.9.9") < made.index("A gang waited for nothing.") < made.index("## 0.1.0")
    )
    assert made.count("\n- ") >= before.read_text().count("\n- ") + 1 + len(FILES)
