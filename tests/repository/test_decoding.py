"""Decoders and conversions come from one module: one thread at a time reads a type."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = "shared/src/stromboli/shared/decoding.py"
EXCEPT = (OURS, "shared/tests/test_decoding_threads.py", "tests/repository/test_decoding.py")
INSTEAD = {
    "msgspec.convert": "decoding.convert",
    "msgspec.json.Decoder": "decoding.decoder_of",
    "msgspec.msgpack.Decoder": "decoding.msgpack_decoder_of",
}


def names_of(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name of everything that a module imports of msgspec."""
    names = {"msgspec": "msgspec"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                each.asname: each.name
                for each in node.names
                if each.asname and each.name.startswith("msgspec")
            }
    return names


def full_name(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (left := full_name(node.value, names)):
        return f"{left}.{node.attr}"
    return ""


def readers(source: str) -> Iterator[str]:
    """`line: what to call instead` of everything in a module that makes msgspec read a type."""
    if "msgspec" not in source:
        return  # parsing all files takes longest
    tree = ast.parse(source)
    names = names_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and full_name(node, names) == "msgspec.convert":
            yield f"{node.lineno}: decoding.convert"
        if not isinstance(node, ast.Call):
            continue
        called = full_name(node.func, names)
        if called in INSTEAD and called.endswith("Decoder") and (node.args or node.keywords):
            yield f"{node.lineno}: {INSTEAD[called]}"
        elif called.startswith("msgspec.") and called.endswith(".decode"):
            has_type = any(keyword.arg in ("type", None) for keyword in node.keywords)
            yield from [f"{node.lineno}: decoding.from_json"] * has_type


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        ("import msgspec\nmsgspec.json.Decoder(int)", "decoding.decoder_of"),
        ("from msgspec import json\njson.Decoder(int)", "decoding.decoder_of"),
        ("import msgspec as m\nm.msgpack.Decoder(type=int)", "decoding.msgpack_decoder_of"),
        ("import msgspec\nmsgspec.json.decode(b'1', type=int)", "decoding.from_json"),
        ("from msgspec import convert\nmap(convert, [])", "decoding.convert"),
    ],
)
def test_a_type_that_is_read_elsewhere_is_found(source: str, instead: str) -> None:
    assert list(readers(source)) == [f"2: {instead}"]


def test_msgspec_without_a_type_and_encoders_are_allowed() -> None:
    allowed = "import msgspec\nmsgspec.json.decode(b'1')\nmsgspec.json.Decoder()\n"
    assert list(readers(allowed + "msgspec.json.Encoder(order='sorted')")) == []


def test_all_decoders_and_conversions_come_from_one_module() -> None:
    """msgspec publishes what it knows of a Struct before it is complete: a second thread that
    reads it ends the process with a segmentation fault."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {
        f"{path}:{reader}"
        for path in listed.stdout.splitlines()
        if path not in EXCEPT and (ROOT / path).is_file()
        for reader in readers((ROOT / path).read_text())
    }
    assert found == set()
