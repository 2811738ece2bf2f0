"""Tests of the setup: uv gets pip's settings, failures are one line, and partial environments are
rebuilt."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without members, in a folder with a space in its name."""
    root = tmp_path / "a checkout"
    (root / "tools").mkdir(parents=True)
    for name in ("bootstrap.py", "environment.py", "uv.txt"):
        shutil.copy(ROOT / "tools" / name, root / "tools" / name)
    (root / "requirements.txt").write_text("")
    (root / "pyproject.toml").write_text("[tool.uv.workspace]\nmembers = []\n")
    return root


def bootstrap(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/bootstrap.py"],
        cwd=checkout,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_ensurepip_one_line_names_the_package_to_install(
    checkout: Path, tmp_path: Path
) -> None:
    """Debian ships ensurepip in a separate package; the test hides it in the same way."""
    hidden = tmp_path / "hidden" / "ensurepip"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not installed')\n")

    done = bootstrap(checkout, PYTHONPATH=str(hidden.parent))

    assert done.returncode == 1
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt install python{version}-venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (checkout / ".venv").exists()


def test_an_environment_that_matches_the_lock_is_kept(checkout: Path) -> None:
    stamp = checkout / environment.STAMP
    stamp.parent.mkdir()
    stamp.write_text(json.dumps(environment.fingerprint(checkout)))

    done = bootstrap(checkout)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (checkout / ".strom").exists()


def test_the_fingerprint_changes_with_the_lock(checkout: Path) -> None:
    before = environment.fingerprint(checkout)
    (checkout / "requirements.txt").write_text("msgspec==0.20.0\n")
    assert environment.fingerprint(checkout)["content"] != before["content"]


WANT = {"content": "c", "python": "3.11.7 /usr", "checkout": "/home/me/stromboli"}


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        pytest.param({**WANT, "content": "older"}, True, id="only the lock has changed"),
        pytest.param({}, False, id="no stamp"),
        pytest.param({"content": environment.INCOMPLETE}, False, id="a setup was interrupted"),
        pytest.param({**WANT, "python": "3.12.1 /usr"}, False, id="another Python"),
        pytest.param({**WANT, "checkout": "/elsewhere"}, False, id="the checkout has moved"),
    ],
)
def test_an_environment_is_kept_only_if_it_was_completed_here(
    found: dict[str, str], kept: bool
) -> None:
    assert environment.can_keep(found, WANT) is kept


def test_the_gate_reads_on_an_interpreter_that_is_too_old() -> None:
    """The bootstrap uses only older syntax: a SyntaxError would hide the message about the
    version."""
    source = (ROOT / "tools" / "bootstrap.py").read_text()
    ast.parse(source, feature_version=(3, 4))
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)]


LISTING = """\
:env:.index-url='https://env.example/simple'
global.cert='/etc/ssl/company.pem'
global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'
global.index-url='https://global.example/simple'
global.timeout='60'
install.timeout='90'
install.trusted-host='one.example two.example'
freeze.timeout='1'
"""


def test_pips_settings_win_in_pips_order() -> None:
    """Precedence: the environment, then the command's section, then the global one. Sections of
    other commands are ignored."""
    settings = environment.pip_settings(LISTING)
    assert settings["index-url"] == "https://env.example/simple"
    assert settings["timeout"] == "90"
    assert settings["cert"] == "/etc/ssl/company.pem"


def test_pips_settings_reach_uv_in_uvs_words() -> None:
    variables = environment.uv_environment(environment.pip_settings(LISTING), {})
    assert variables["UV_DEFAULT_INDEX"] == "https://env.example/simple"
    assert variables["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert variables["UV_INSECURE_HOST"] == "one.example two.example"
    assert variables["SSL_CERT_FILE"] == "/etc/ssl/company.pem"
    assert variables["UV_HTTP_TIMEOUT"] == "90"
    assert variables["UV_PYTHON_DOWNLOADS"] == "never"


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_the_users_uv_settings_win(variable: str) -> None:
    reported = {variable: "https://mine.example/simple"}
    variables = environment.uv_environment({"index-url": "https://pip.example"}, reported)
    assert variables[variable] == reported[variable]
    assert "https://pip.example" not in variables.values()


def test_a_folder_of_wheels_that_is_absent_is_skipped_as_pip_does(tmp_path: Path) -> None:
    listed = f"{tmp_path}\n{tmp_path}/absent https://wheels.example/"
    assert environment.in_uv_words("find-links", listed) == f"{tmp_path},https://wheels.example/"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        pytest.param(
            "WARNING: Retrying: NewConnectionError: Connection refused\nERROR: No matching", None,
            id="pip without a network",
        ),
        pytest.param("error: Request failed\n  Caused by: dns error", None, id="uv without one"),
        pytest.param("x\nERROR: hash mismatch\nhint", "ERROR: hash mismatch", id="another error"),
    ],
)  # fmt: skip
def test_a_failed_step_is_explained_in_one_line(output: str, line: str | None) -> None:
    explained = environment.summarize_failure(output)
    assert explained.startswith(line or "the package index cannot be reached")
    assert ".strom/setup.log" in explained
    assert "\n" not in explained
