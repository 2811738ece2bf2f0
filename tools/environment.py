"""Builds `.venv` from the hashed lock. Does nothing if it already matches the lock.

Steps: create a virtual environment of the running Python, install uv with pip (pinned and hashed in
`tools/uv.txt`), install the lock with uv, and install the workspace's members as editable. Uses
only the standard library, since no package is installed yet.

Invariants:
- `.venv/stromboli-setup.json` has the digest of everything the environment was built from. It is
  written last. While a setup runs it contains `incomplete`, so a setup that was killed at any point
  is repeated from the start, since installers treat a partly unpacked package as installed.
- pip's settings (index, find-links, certificate, proxy) are applied, although uv reads none of
  them; the user's settings of uv itself have precedence.
- No Python is ever downloaded, and every third party file is checked against its hash.
"""

import ast
import fcntl
import hashlib
import json
import os
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
STAMP = Path(".venv/stromboli-setup.json")
STATE = Path(".strom")
INCOMPLETE = "incomplete"

# pip's setting -> the variable that has the same meaning for uv (or its TLS library).
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
}
# Other variables of the same meaning. If a user has set one, pip's setting is not passed on.
ALTERNATIVES = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "SSL_CERT_FILE": ("SSL_CERT_DIR",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"),
}
# Texts by which pip, uv and the resolver report that the package index is not reachable.
UNREACHABLE = (
    "dns error",
    "error sending request",
    "Failed to connect",
    "Failed to establish a new connection",
    "name resolution",
    "Network is unreachable",
    "Connection refused",
    "timed out",
    "ProxyError",
)


class SetupError(Exception):
    """A step failed. The text is one line: what failed, and what to do."""


def main(root: str) -> int:
    """Make `.venv` match the lock and return the exit status. Takes less than 0.1 s if it matches
    already."""
    os.chdir(root)
    want = fingerprint(Path())
    if read_stamp() == want:
        return 0
    STATE.mkdir(exist_ok=True)
    with open(STATE / "setup.lock", "w") as lock:
        # Of two concurrent `make`s, the second one waits. The steps inherit the lock, so that it
        # also waits for steps that outlive a killed setup.
        fcntl.fcntl(lock, fcntl.F_SETFD, 0)  # inheritable
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = read_stamp()
        if found == want:
            return 0
        try:
            build(want, keep=can_keep(found, want))
        except SetupError as failure:
            print(f"setup: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("setup: interrupted; the next `make` starts it again", file=sys.stderr)
            return 130
    return 0


# --- contents of the environment


def members(root: Path) -> list[str]:
    """The workspace's members, in the order in which the root's pyproject.toml lists them."""
    with open(root / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["tool"]["uv"]["workspace"]["members"]
    return [str(member) for member in listed]


def fingerprint(root: Path) -> dict[str, str]:
    """The digests of everything that determines the content of the environment, as the stamp
    records them."""
    digest = hashlib.sha256()
    sources = ["requirements.txt", "tools/uv.txt", "tools/environment.py"]
    for name in [*sources, *(f"{member}/pyproject.toml" for member in members(root))]:
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return {
        "content": digest.hexdigest(),
        "python": f"{PYTHON}.{sys.version_info.micro} {sys.base_prefix}",
        "checkout": str(root.absolute()),  # scripts and editable members contain absolute paths
    }


def read_stamp() -> dict[str, str]:
    """The stamp of the existing environment; empty if it is missing or cannot be read."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def can_keep(found: Mapping[str, str], want: Mapping[str, str]) -> bool:
    """Whether the existing environment was completed by this Python in this checkout, so that it
    can be updated."""
    return found.get("content", INCOMPLETE) != INCOMPLETE and all(
        found.get(part) == want[part] for part in ("python", "checkout")
    )


# --- the steps


def build(want: dict[str, str], keep: bool) -> None:
    """Build the environment described by `want`: update the existing one if `keep`, else create a
    new one.

    Raises SetupError with the one line to show.
    """
    started = time.monotonic()
    (STATE / "setup.log").write_text("")
    python = ".venv/bin/python"
    if not keep:
        print_progress(f"Python {PYTHON}, a new environment in .venv")
        require_ensurepip()
        # A venv created by the Python of another venv would depend on that one, so use its base.
        base = getattr(sys, "_base_executable", sys.executable)
        run("creating .venv", [base, "-m", "venv", "--clear", ".venv"], os.environ)
    STAMP.write_text(json.dumps({"content": INCOMPLETE}))
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    pip_environment = {**os.environ, "PIP_USER": "0"}  # a venv has no user site
    print_progress("installing uv")
    run(
        "installing uv",
        [*pip, "install", "--require-hashes", "--only-binary=:all:", "-r", "tools/uv.txt"],
        pip_environment,
    )
    settings = pip_settings(run("reading pip's settings", [*pip, "config", "list"], os.environ))
    environment = uv_environment(settings, os.environ)
    uv = [".venv/bin/uv", "pip"]
    no_index = ["--no-index"] if settings.get("no-index", "").lower() in TRUE else []
    print_progress("installing the packages of requirements.txt")
    locked = ["requirements.txt", "tools/uv.txt"]  # both, or the sync would remove uv
    run(
        "installing the locked packages",
        [*uv, "sync", "--python", python, "--require-hashes", *no_index, *locked],
        environment,
    )
    print_progress("installing the workspace's members, editable")
    editable = [word for member in members(Path()) for word in ("-e", member)]
    run(
        "installing the members",
        [*uv, "install", "--python", python, "--no-deps", "--no-build-isolation", *editable],
        environment,
    )
    STAMP.write_text(json.dumps(want, indent=1))
    print_progress(f"done in {time.monotonic() - started:.0f} s")


def require_ensurepip() -> None:
    """Raise SetupError, which names the package to install, if this Python cannot create virtual
    environments."""
    try:
        import ensurepip  # noqa: F401 - a separate package in Debian
        import venv  # noqa: F401 - checks only that it exists
    except ImportError:
        raise SetupError(
            f"Python {PYTHON} here comes without venv and ensurepip: on Debian or Ubuntu run "
            f"`apt install python{PYTHON}-venv`, elsewhere install a complete Python {PYTHON}"
        ) from None


def print_progress(progress: str) -> None:
    """Print the progress and flush it, so that a pipe shows it immediately."""
    print(f"setup: {progress}", flush=True)


def run(step: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run one step and return its stdout; all of its output is added to `.strom/setup.log`.

    Raises SetupError with the step and the next step of the user.
    """
    done = subprocess.run(
        command,
        env=environment,
        close_fds=False,  # inherits the lock
        text=True,
        capture_output=True,
        errors="replace",
        check=False,
    )
    with open(STATE / "setup.log", "a") as log:
        log.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        raise SetupError(f"{step} failed: {summarize_failure(done.stdout + done.stderr)}")
    return done.stdout


def summarize_failure(output: str) -> str:
    """One line about a failed step: a network failure, else the last line of output."""
    if any(words in output for words in UNREACHABLE):
        return (
            "the package index cannot be reached. pip's and uv's settings are used (index-url, "
            "find-links, cert, proxy); details: .strom/setup.log"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    last = (errors or lines or ["it printed no message"])[-1]
    return f"{last} (details: .strom/setup.log)"


# --- pip's settings for uv

TRUE = ("1", "true", "yes", "on")
# Later ones take precedence, as in pip: files for all commands, for `install`, the environment.
SECTIONS = ("global", "install", ":env:")


def pip_settings(listing: str) -> dict[str, str]:
    """The effective settings of `pip install`, from the output of `pip config list`."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listing.splitlines():
        key, equals, value = line.partition("=")
        section, dot, name = key.partition(".")
        if equals and dot and section in found:
            name = "timeout" if name.lstrip(".") == "default-timeout" else name.lstrip(".")
            found[section][name] = str(ast.literal_eval(value))
    return {name: value for section in SECTIONS for name, value in found[section].items()}


def uv_environment(pip: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with pip's settings in uv's names, unless the user has set them for uv."""
    result = {**environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    for misleading in ("UV_SYSTEM_PYTHON", "UV_REQUIRE_HASHES", "UV_NO_BINARY"):
        result.pop(misleading, None)  # these would contradict a step of the setup
    for name, variable in UV_VARIABLES.items():
        value = in_uv_words(name, pip.get(name, ""))
        taken = (variable, *ALTERNATIVES.get(variable, ()))
        if value and not any(other in environ for other in taken):
            result[variable] = value
            if name == "extra-index-url":
                # pip searches all indexes; uv would stop at the first one that has the package.
                # The hashes make searching all of them safe.
                result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if system_has_certificates():
        # As in pip: the system's store may contain a company's CA.
        result.setdefault("UV_SYSTEM_CERTS", "true")
    return result


def in_uv_words(name: str, value: str) -> str:
    """A value of a pip setting in the format of uv's variable: with other separators, and without
    folders that do not exist."""
    if name == "find-links":
        # pip ignores a folder that does not exist; uv fails.
        places = [place for place in value.split() if "://" in place or os.path.exists(place)]
        return ",".join(places)
    if name in ("extra-index-url", "trusted-host"):
        return " ".join(value.split())
    return value.strip()


def system_has_certificates() -> bool:
    """Whether the system's certificate store has certificates; minimal containers have none."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and os.listdir(paths.capath)))
