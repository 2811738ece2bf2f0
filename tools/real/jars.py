"""Downloads Kafka's jars: with Maven if it is on PATH, else each from the pinned list. Digests are
checked in both cases.

`tools/kafka/jars.txt` is authoritative: one `group:artifact:version sha256` per line. The jars that
Maven resolves from pom.xml must equal that list. Without Maven the repository's address comes from
MAVEN_REPO_URL or ~/.m2/settings.xml (a mirror of central first, then a profile's repository), and
otherwise from a library that contains it.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import subprocess
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.real.errors import InstallError

# Pinned, since another version of the plugin may place or name the copies differently.
MAVEN_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
DOWNLOAD_TIMEOUT_S = 60
DOWNLOAD_ATTEMPTS = 3  # a jar has a few MB at most; repositories occasionally drop a connection
PARALLEL_DOWNLOADS = 4


@dataclass(frozen=True)
class Jar:
    """One pinned jar."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The jar's file name in the libs directory, the same as that of Maven's copies."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """The jar's path below the base address of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"

    def line(self) -> str:
        """The jar's line in jars.txt."""
        return f"{self.group}:{self.artifact}:{self.version} {self.sha256}"


def parse_pins(text: str) -> tuple[Jar, ...]:
    """The jars of a jars.txt; empty lines and lines that start with # are skipped.

    Raises InstallError, which names a line that is not of the form `group:artifact:version sha256`.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([^:\s]+):([^:\s]+):([^:\s]+) ([0-9a-f]{64})", line.strip())
        if match is None:
            raise InstallError(f"jars.txt line {number} is not `group:artifact:version sha256`")
        jars.append(Jar(*match.groups()))
    return tuple(jars)


def sha256(path: Path) -> str:
    """The hexadecimal digest of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def verify(libs: Path, pins: Iterable[Jar]) -> None:
    """Raise InstallError unless `libs` contains exactly the pinned jars with the pinned digests."""
    expected = {jar.file_name: jar.sha256 for jar in pins}
    present = {path.name: path for path in libs.iterdir()}
    if missing := sorted(expected.keys() - present.keys()):
        raise InstallError(
            f"jars missing after the download: {', '.join(missing)}: run `make real-tools` again"
        )
    if extra := sorted(present.keys() - expected.keys()):
        raise InstallError(
            f"jars that jars.txt does not pin: {', '.join(extra)}: run tools/real/pin_jars.py"
        )
    for name, digest in expected.items():
        if sha256(present[name]) != digest:
            raise InstallError(
                f"{name} does not have the pinned digest: remove it from ~/.m2/repository, check "
                "the repository you use, then run it again"
            )


def repository_url(env: Mapping[str, str], settings: Path) -> str | None:
    """The address of the Maven repository that the user has configured, without a trailing slash;
    None without one."""
    if url := env.get("MAVEN_REPO_URL"):
        return url.rstrip("/")
    if not settings.is_file():
        return None
    try:
        tree = ElementTree.parse(settings)
    except ElementTree.ParseError:
        return None
    mirrors = [
        mirror.findtext("{*}url")
        for mirror in tree.iterfind(".//{*}mirror")
        if re.search(r"(^|,)\s*(\*|central|external:\*)", mirror.findtext("{*}mirrorOf") or "")
        and mirror.findtext("{*}blocked") != "true"
    ]
    repositories = [found.findtext("{*}url") for found in tree.iterfind(".//{*}repository")]
    for found in [*mirrors, *repositories]:
        if found and found.strip():
            url = re.sub(r"\$\{env\.(\w+)\}", lambda name: env.get(name[1], ""), found.strip())
            return url.rstrip("/")
    return None


@dataclass(frozen=True)
class Source:
    """The source of jars: the path of Maven, or the address of a repository."""

    maven: str | None
    url: str | None


def find_source(env: Mapping[str, str], central: Callable[[], str | None]) -> Source:
    """Maven if it is on PATH, else the repository that the user has configured, else the result of
    ``central``.

    Raises InstallError with the next step if there is none; call it before any download.
    """
    if maven := shutil.which("mvn"):
        return Source(maven, None)
    if url := repository_url(env, Path.home() / ".m2" / "settings.xml"):
        return Source(None, url)
    if url := central():
        return Source(None, url)
    raise InstallError(
        "Maven is not on PATH, and no repository is configured: install Maven (apt install "
        "maven), or set MAVEN_REPO_URL to a Maven repository's base address"
    )


def fetch(source: Source, repository: Path, libs: Path, pins: tuple[Jar, ...]) -> None:
    """Fill the empty directory `libs` with the pinned jars and verify them."""
    if source.maven is not None:
        print(f"  {len(pins)} jars by Maven", flush=True)
        copy_with_maven(source.maven, repository / "tools" / "kafka" / "pom.xml", libs)
    if source.url is not None:
        print(f"  {len(pins)} jars from the pinned list", flush=True)
        download(source.url, libs, pins)
    verify(libs, pins)


def copy_with_maven(maven: str, pom: Path, libs: Path) -> None:
    """Let Maven resolve pom.xml and copy the jars to `libs`. Raises InstallError."""
    run_maven(maven, pom, "copy-dependencies", f"-DoutputDirectory={libs}")


def run_maven(maven: str, pom: Path, goal: str, *properties: str) -> None:
    """Run one goal of the dependency plugin on a pom. Raises InstallError with Maven's error."""
    command = [maven, "-B", "-q", "-f", str(pom), f"{MAVEN_DEPENDENCY_PLUGIN}:{goal}"]
    command += ["-DincludeScope=runtime", *properties]
    # Maven's start scripts read MAVEN_OPTS and similar variables from the environment, which is
    # unchanged.
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=pom.parent)
    if done.returncode != 0:
        reasons = [
            line.removeprefix("[ERROR]").strip()
            for line in (done.stdout + done.stderr).splitlines()
            if line.startswith("[ERROR]")
        ]
        raise InstallError(f"Maven failed: {(reasons or ['no message'])[0]}: see `mvn -X`")


def download(base_url: str, libs: Path, pins: tuple[Jar, ...]) -> None:
    """Download every pinned jar from the repository at `base_url`."""
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        waiting = [pool.submit(_download_one, base_url, libs, jar) for jar in pins]
        for done in waiting:
            done.result()


def _download_one(base_url: str, libs: Path, jar: Jar) -> None:
    path = libs / jar.file_name
    path.write_bytes(_read(f"{base_url}/{jar.repository_path}", jar.file_name))
    path.chmod(0o644)


def _read(url: str, name: str) -> bytes:
    attempt = 1
    while True:
        try:
            with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
                return bytes(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            permanent = isinstance(error, (urllib.error.HTTPError, ValueError))
            if permanent or attempt == DOWNLOAD_ATTEMPTS:
                raise InstallError(
                    f"cannot download {name} ({error}): check MAVEN_REPO_URL or "
                    "~/.m2/settings.xml, or install Maven"
                ) from error
        attempt += 1
