"""Rewrites tools/kafka/jars.txt: the jars that Maven resolves from pom.xml, with digests. Needs
Maven.

Run it after changing a version: `python tools/real/pin_jars.py`. Review the diff before committing
it: every line is a jar that will run on other people's machines.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.real import jars  # noqa: E402 - found only once the working tree is on the path
from tools.real.errors import InstallError  # noqa: E402 - as above

HEADER = """\
# The Kafka broker's jars with their SHA-256 digests: every installation is checked against them.
# Written by tools/real/pin_jars.py from pom.xml; not edited by hand.
"""


def resolved(listing: str) -> list[tuple[str, str, str]]:
    """(group, artifact, version) of each jar in the output of Maven's dependency:list."""
    found = re.findall(r"^\s+([\w.-]+):([\w.-]+):jar:([\w.-]+):\w+", listing, re.MULTILINE)
    return sorted(found)


def main() -> int:
    """Write jars.txt; returns the exit status."""
    maven = shutil.which("mvn")
    kafka = REPOSITORY / "tools" / "kafka"
    if maven is None:
        print("pinning needs Maven on PATH (apt install maven)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        libs, listing = Path(scratch) / "libs", Path(scratch) / "list.txt"
        try:
            jars.run_maven(maven, kafka / "pom.xml", "list", f"-DoutputFile={listing}")
            jars.copy_with_maven(maven, kafka / "pom.xml", libs)
        except InstallError as error:
            print(error, file=sys.stderr)
            return 1
        names = resolved(listing.read_text())
        unpinned = [jars.Jar(*name, sha256="") for name in names]
        pins = [
            jars.Jar(jar.group, jar.artifact, jar.version, jars.sha256(libs / jar.file_name))
            for jar in unpinned
        ]
    (kafka / "jars.txt").write_text(HEADER + "".join(f"{jar.line()}\n" for jar in pins))
    print(f"pinned {len(pins)} jars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
