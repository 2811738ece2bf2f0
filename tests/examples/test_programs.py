"""The programs inside of the examples can at least be read, also where their images are not."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples import manifests
from tests.examples.manifests import Document

SHELLS = ("sh", "bash")


def containers(tree: Any) -> Iterator[Document]:
    """Every container in a manifest, wherever its kind keeps them."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "containers":
                yield from value
            else:
                yield from containers(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from containers(value)


def programs() -> Iterator[Any]:
    for path in manifests.FILES:
        for document in manifests.read(path.stem):
            for container in containers(document):
                words = [*container.get("command", ()), *container.get("args", ())]
                if words:
                    name = f"{path.stem}-{container['name']}"
                    yield pytest.param(words[0], words[-1], id=name)


@pytest.mark.parametrize(("interpreter", "text"), list(programs()))
def test_a_program_can_be_read(interpreter: str, text: str) -> None:
    if interpreter in SHELLS:
        subprocess.run([interpreter, "-n", "-c", text], check=True, timeout=30)
    else:
        assert interpreter == "python3"
        compile(text, "example", "exec")
