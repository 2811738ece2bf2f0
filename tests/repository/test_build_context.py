"""The build context of images: `.dockerignore` lets in what the Dockerfiles copy."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted(ROOT.glob("services/*/Dockerfile"))


def copied(dockerfile: Path) -> list[str]:
    """The sources of the COPY instructions that read the build context."""
    lines = dockerfile.read_text().replace("\\\n", " ").splitlines()
    words = [line.split() for line in lines if line.startswith("COPY ") and "--from=" not in line]
    return [word for line in words for word in line[1:-1] if not word.startswith("--")]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_the_build_context_has_every_file_that_is_copied(dockerfile: Path) -> None:
    rules = (ROOT / ".dockerignore").read_text().split()
    context = [rule[1:] for rule in rules if rule.startswith("!")]
    sources = [source.removeprefix("./").rstrip("/") for source in copied(dockerfile)]
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        assert any(source == it or source.startswith(f"{it}/") for it in context), source
