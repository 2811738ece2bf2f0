"""The code blocks of our pages, and the sessions that console blocks show."""

import doctest
from collections.abc import Iterator
from pathlib import Path

import msgspec
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/decisions/*.md",
        "services/*/README.md",
        "*/README.md",
    )
    for path in ROOT.glob(pattern)
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(msgspec.Struct, frozen=True):
    """A fenced block. ``title``: where it is, for people and for names of tests."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def title(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The name in its first line, if that is ``# NAME.yaml`` or ``# NAME.py`` and perhaps
        more."""
        words = self.text.partition("\n")[0].removeprefix("# ").split()
        name = words[0].rstrip(",") if words else ""
        return name if name.endswith((".yaml", ".py")) else ""


class Step(msgspec.Struct, frozen=True):
    """A command and its expected output; ``...`` matches anything."""

    command: str
    output: str

    def printed(self, text: str) -> bool:
        return doctest.OutputChecker().check_output(self.output, text, FLAGS)


def of_page(page: Path) -> Iterator[Block]:
    """All fenced blocks of a page."""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence" and token.map:
            language = token.info.split()[0] if token.info else ""
            yield Block(page, token.map[0] + 1, language, token.content)


def everywhere(*languages: str) -> list[Block]:
    """Of all pages, in these languages."""
    return [block for page in PAGES for block in of_page(page) if block.language in languages]


def steps(block: Block) -> Iterator[Step]:
    """The session in a console block."""
    command, output = "", ""
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            if command:
                yield Step(command, output)
            command, output = line.removeprefix("$ ").strip(), ""
        else:
            output += line
    yield Step(command, output)


def commands(block: Block) -> Iterator[str]:
    """Every ``strom ...`` command in a shell block, executed or only shown."""
    for line in block.text.splitlines():
        found = line.removeprefix("$ ").strip()
        if found.startswith("strom "):
            yield found
