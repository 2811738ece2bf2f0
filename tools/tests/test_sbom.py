"""Tests of bills of materials: they list all packages that an image installs."""

import json
from pathlib import Path

import pytest

from tools import sbom


@pytest.mark.parametrize("service", sbom.SERVICES)
def test_every_package_of_the_lock_is_in_the_bill_with_its_digests(
    service: str, tmp_path: Path
) -> None:
    assert sbom.main([str(tmp_path)]) == 0
    bill = json.loads((tmp_path / f"stromboli-{service}.cdx.json").read_text())
    lock = (sbom.ROOT / "services" / service / "requirements.txt").read_text()
    pinned = {line.split("==")[0].lower() for line in lock.splitlines() if "==" in line}
    assert {each["name"] for each in bill["components"]} == {
        name.partition("[")[0] for name in pinned
    }
    assert all(each["hashes"] for each in bill["components"])
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(references) == len(set(references))


def test_a_package_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="pins no version"):
        list(sbom.components("aiokafka>=1\n"))
