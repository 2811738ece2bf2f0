"""Generates software bills of materials of the services' images: ``make sbom``.

One CycloneDX 1.6 document for each service, from the locked requirements that its image installs:
every package with its version and the digests that are allowed for it. Equal locks give equal
bytes. The packages of the base image are not included; an image scanner lists them.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SERVICES = ("admission", "console", "controller", "history", "monitor", "scheduler")
_PACKAGE = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)")
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(requirements: str) -> Iterator[dict[str, Any]]:
    """The packages of a lock. Raises ValueError for an entry without a pinned version."""
    for entry in re.split(r"(?<!\\)\n", requirements):
        if not entry.strip() or entry.startswith("#"):
            continue
        match = _PACKAGE.match(entry)
        if match is None:
            raise ValueError(f"{entry.splitlines()[0]!r} pins no version")
        name, version = match["name"].lower(), match["version"]
        purl = f"pkg:pypi/{name}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in _DIGEST.findall(entry)],
        }


def document(service: str, requirements: str) -> dict[str, Any]:
    """The bill of materials of one service's image."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": f"stromboli-{service}",
                "name": f"stromboli-{service}",
            }
        },
        "components": list(components(requirements)),
    }


def write(folder: Path) -> None:
    """Write NAME.cdx.json of each service into ``folder``."""
    for service in SERVICES:
        lock = (ROOT / "services" / service / "requirements.txt").read_text(encoding="utf-8")
        made = json.dumps(document(service, lock), indent=1)
        (folder / f"stromboli-{service}.cdx.json").write_text(f"{made}\n", encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    """Write the bills of materials into a folder."""
    parser = argparse.ArgumentParser(prog="python -m tools.sbom")
    parser.add_argument("folder", type=Path, help="folder for the files NAME.cdx.json")
    folder: Path = parser.parse_args(words).folder
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
