"""The bill of materials: what a user gets with the package, and that no licence is taken unseen."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.bill_of_materials import main, refused


def test_it_has_what_any_extra_brings_and_no_tool_of_ours(tmp_path: Path) -> None:
    assert main(tmp_path) == 0
    listed, written = sorted(tmp_path.iterdir())
    bill = json.loads(listed.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "statestore")
    parts = {part["name"]: part for part in bill["components"]}
    assert {"pyspark", "rocksdict", "py4j", "starlette", "cedarpy", "httpx2", "cffi"} <= set(parts)
    assert not {"pytest", "mkdocs", "cyclonedx-python-lib"} & set(parts)
    assert all(part["licenses"] and part["purl"].endswith(f"@{part['version']}") for part in parts.values())
    needs = {part["ref"]: part.get("dependsOn", []) for part in bill["dependencies"]}
    assert needs["pyspark"] == ["py4j"]
    assert "pyspark" in needs["statestore"]
    lines = written.read_text(encoding="utf-8").splitlines()
    assert [line.partition(" ")[0] for line in lines] == sorted([*parts, "statestore"])
    assert f"pyspark {parts['pyspark']['version']}: Apache-2.0" in lines


def test_a_licence_that_is_unknown_or_not_on_the_list_is_refused() -> None:
    said = {"a": "", "b": "MIT AND GPL-3.0-only", "c": "Apache-2.0 OR (MIT AND ISC)", "d": "as it is"}
    assert list(refused(said)) == [
        "a: licence unknown",
        "b: licence MIT AND GPL-3.0-only",
        "d: licence as it is",
    ]
