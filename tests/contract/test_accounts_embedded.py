"""The file of accounts gives the same results as a cluster's accounts."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.embedded import accounts
from stromboli.testkit.contracts import accounts as contract

USERS = ("ann", "ben", "eve", "op")
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}


def account(name: str, tokens: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "local.stromboli.sh/v1",
        "kind": "Account",
        "metadata": {"name": name},
        "tokens": [{"value": value, "audience": each} for each, value in tokens.items()],
    }


def write(path: Path, *documents: Any) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


class TestFileAccounts(contract.AccountsContract):
    @pytest.fixture
    def setting(self, tmp_path: Path) -> contract.Setting:
        scene = contract.Scene()
        tokens = {
            (user, audience): f"token-of-{user}-for-{audience}"
            for user in USERS
            for audience in (contract.AUDIENCE, contract.OTHER_AUDIENCE)
        }
        known = [
            account(
                scene.user(user), {each: tokens[user, each] for of, each in tokens if of == user}
            )
            for user in USERS
        ]
        file_accounts = accounts.read(write(tmp_path / "a.yaml", *known, *scene.rbac()), "us")
        return contract.Setting(scene, file_accounts, tokens)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "Secret"}, "'Secret'"),
        ({**ROLE, "apiVersion": "v1"}, "apiVersion 'v1'"),
        ({**ROLE, "aggregationRule": {}}, "aggregationRule"),
        ({**ROLE, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/"]}]}, "nonResourceURLs"),
        ({**account("a", {}), "token": "t"}, "token"),
        ([], "kind None"),
    ],
    ids=["kind", "version", "aggregation", "urls", "field", "shape"],
)
def test_an_unknown_document_is_rejected(tmp_path: Path, document: Any, said: str) -> None:
    """With the file and the line."""
    path = write(tmp_path / "accounts.yaml", account("fine", {}), document)
    with pytest.raises(ValueError, match=said) as error:
        accounts.read(path, "us")
    assert str(path) in str(error.value)
    assert "line " in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.yaml"):
        accounts.read(tmp_path / "none.yaml", "us")


def test_a_token_is_not_shown_by_accident(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", account("ann", {"stromboli": "a-secret"}))
    assert "a-secret" not in repr(accounts.read(path, "us")._known)
