"""``python -m stromboli.admission.rest.openapi_file`` writes ``docs/openapi.json``.

With ``--check`` it exits with 1 if the file is out of date.
"""

import sys
from pathlib import Path

import msgspec
from litestar import Litestar

from stromboli.admission.rest import application, openapi

MODULE = "stromboli.admission.rest.openapi_file"
FILE = Path(__file__).parents[6] / "docs" / "openapi.json"


def text(app: Litestar) -> str:
    """The expected content of the file."""
    document = openapi.complete(app.openapi_schema.to_schema())
    raw = msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1)
    return raw.decode() + "\n"


def main(arguments: list[str]) -> None:
    """Write the file, or compare it."""
    content = text(application.application_for_openapi())
    if arguments == ["--check"]:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != content:
            sys.exit(f"{FILE.name} is not up to date: run python -m {MODULE}")
    elif arguments:
        sys.exit(f"usage: python -m {MODULE} [--check]")
    else:
        FILE.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
