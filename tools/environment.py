"""Builds `.venv` from the hashed lock, and does nothing when it is already what the lock says.

Steps: a virtual environment of the running Python, uv into it by pip (pinned and hashed in
`tools/uv.txt`), the lock by uv, the workspace's members editable. Standard library only: nothing
is installed yet.

Invariants:
- `.venv/stromboli-setup.json` has the digest of everything the environment was built from. It
  is written last. While a setup runs it contains `incomplete`, so a setup that was killed at any
  point is repeated from the start: a half unpacked package looks installed to every installer.
- pip's settings (index, find-links, certificate, proxy) are applied, although uv reads none
  of them; the user's settings of uv itself have precedence.
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

# pip's setting -> the variable by which uv (or the TLS library in it) takes the same thing.
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
# What a user may have set instead; then pip's word on the same matter is not passed on.
ALTERNATIVES = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "SSL_CERT_FILE": ("SSL_CERT_DIR",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"),
}
# Texts with which pip, uv and the resolver report that the package index is not reachable.
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
    """A step failed; the text is the one line that a person needs."""


def main(root: str) -> int:
    """Make `.venv` match the lock and return the exit status; under 0.1 s if it matches already."""
    os.chdir(root)
    want = fingerprint(Path())
    if read_stamp() == want:
        return 0
    STATE.mkdir(exist_ok=True)
    with open(STATE / "setup.lock", "w") as lock:
        # Of two concurrent `make`s, the second one waits. The steps inherit the lock, so that it
        # also waits for one that outlives a killed setup.
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
            print("setup: interrupted; the next `make` starts it afresh", file=sys.stderr)
            return 130
    return 0


# --- what the environment is made of


def members(root: Path) -> list[str]:
    """The workspace's members, in the order in which the root's pyproject.toml lists them."""
    with open(root / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["tool"]["uv"]["workspace"]["members"]
    return [str(member) for member in listed]


def fingerprint(root: Path) -> dict[str, str]:
    """Everything that decides what the environment holds, as the stamp records it."""
    digest = hashlib.sha256()
    sources = ["requirements.txt", "tools/uv.txt", "tools/environment.py"]
    for name in [*sources, *(f"{member}/pyproject.toml" for member in members(root))]:
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return {
        "content": digest.hexdigest(),
        "python": f"{PYTHON}.{sys.version_info.micro} {sys.base_prefix}",
        "checkout": str(root.absolute()),  # scripts and editable members hold absolute paths
    }


def read_stamp() -> dict[str, str]:
    """The stamp of the present environment, empty if it is missing or cannot be read."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def can_keep(found: Mapping[str, str], want: Mapping[str, str]) -> bool:
    """Whether the present environment was completed by this Python in this very checkout."""
    return found.get("content", INCOMPLETE) != INCOMPLETE and all(
        found.get(part) == want[part] for part in ("python", "checkout")
    )


# --- the steps


def build(want: dict[str, str], keep: bool) -> None:
    """Bring the environment up to `want`, from nothing unless `keep`.

    Raises SetupError with the one line to show.
    """
    started = time.monotonic()
    (STATE / "setup.log").write_text("")
    python = ".venv/bin/python"
    if not keep:
        print_progress(f"Python {PYTHON}, a new environment in .venv")
        require_ensurepip()
        # A venv made by a venv's Python would hang on that one; the base outlives it.
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
    print_progress("installing what requirements.txt lists")
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
    """Raise SetupError, naming the package to install, if this Python cannot make environments."""
    try:
        import ensurepip  # noqa: F401 - Debian ships it in a package of its own
        import venv  # noqa: F401 - asked for its presence only
    except ImportError:
        raise SetupError(
            f"Python {PYTHON} here comes without venv and ensurepip: on Debian or Ubuntu run "
            f"`apt install python{PYTHON}-venv`, elsewhere install a complete Python {PYTHON}"
        ) from None


def print_progress(progress: str) -> None:
    """Print the progress, immediately even through a pipe."""
    print(f"setup: {progress}", flush=True)


def run(step: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run one step and return its stdout; all of its output is added to `.strom/setup.log`.

    Raises SetupError with the step and what to do about it.
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
    last = (errors or lines or ["it said nothing"])[-1]
    return f"{last} (details: .strom/setup.log)"


# --- pip's settings for uv

TRUE = ("1", "true", "yes", "on")
# Later ones win, as they do in pip: files for all commands, for `install`, the environment.
SECTIONS = ("global", "install", ":env:")


def pip_settings(listing: str) -> dict[str, str]:
    """The settings that `pip install` would use, from the output of `pip config list`."""
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
        result.pop(misleading, None)  # each would contradict a step of the setup
    for name, variable in UV_VARIABLES.items():
        value = in_uv_words(name, pip.get(name, ""))
        taken = (variable, *ALTERNATIVES.get(variable, ()))
        if value and not any(other in environ for other in taken):
            result[variable] = value
            if name == "extra-index-url":
                # pip searches all indexes; uv would stop at the first one with the name. The hashes
                # make a further search safe.
                result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if system_has_certificates():
        result.setdefault("UV_SYSTEM_CERTS", "true")  # like pip: it contains a company's own CA
    return result


def in_uv_words(name: str, value: str) -> str:
    """A value of pip's as uv's variable wants it: other separators, no absent folders."""
    if name == "find-links":
        # pip skips a folder that is not there, uv stops at it.
        places = [place for place in value.split() if "://" in place or os.path.exists(place)]
        return ",".join(places)
    if name in ("extra-index-url", "trusted-host"):
        return " ".join(value.split())
    return value.strip()


def system_has_certificates() -> bool:
    """Whether the system's own store of certificates holds any; bare containers have none."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and os.listdir(paths.capath)))
