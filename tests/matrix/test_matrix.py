"""What the matrix runs is there, and its page says what it found."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.matrix import environments
from tests.matrix.__main__ import main
from tests.matrix.environments import CLIENT, ENVIRONMENTS, ROOT, TOO_OLD, VERSIONS
from tests.matrix.page import NOT_RUN, Findings
from tests.matrix.parts import CLIENT_ALONE, DEMOS, PARTS
from tests.matrix.results import in_words, results_of

REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="tests.spark.test_query_settings" name="test_one"/>
<testcase classname="tests.spark.test_query_settings" name="test_two[a-b]"><skipped message="no"/></testcase>
<testcase classname="tests.spark.test_recovery" name="test_in_memory_stores_are_restored_from_snapshots_too[x]">
  <failure message="no"/>
</testcase>
<testcase classname="" name="tests.spark.test_rescale"><error message="no"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize("node", [node for part in (*PARTS, CLIENT_ALONE) for node in part.nodes(few=False)])
def test_what_is_run_is_there(node: str) -> None:
    path, _, test = node.partition("::")
    assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8") if test else (ROOT / path).is_file()


def test_demos_are_there() -> None:
    assert all((ROOT / program).is_file() for program in DEMOS.values())


def test_a_report_is_counted_by_part(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    found = results_of(tmp_path / "report.xml", PARTS)
    said = {about: in_words(counted) for about, counted in found.items() if counted}
    assert said == {
        "Settings of a query alone": "1 passed, 1 not there",
        "Recovery": "1 FAILED",
        PARTS[-1].about: "1 FAILED",
    }
    assert in_words({}) == "not run"


def test_a_spark_that_can_not_be_installed_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tests.matrix", "--few"])
    monkeypatch.setenv("UV_OFFLINE", "1")
    assert main() == 1
    said = capfd.readouterr()
    assert f"Spark {ENVIRONMENTS[0].spark} can't be installed into {tmp_path}" in said.out.splitlines()[-1]
    assert "network was disabled" in said.err


def test_a_column_takes_the_place_of_the_one_before_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- made by make test-matrix -->\nold\n<!-- end -->\nafter\n")
    versions = ["4.0.5", "4.3.0"]
    nothing = Findings.of_page(page)
    assert nothing == Findings([], {})
    two = [
        {"Spark": "4.3.0", "pandas": "3", "Demo": "right", "Same": "1"},
        {"Spark": "4.0.5", "pandas": "1", "Same": "1"},
    ]
    nothing.updated(Findings(two, {"Old": "no: not at all", "Way": "4.0.5 -> 4.3.0"}), versions).write(page)
    later = Findings([{"Spark": "4.0.5", "pandas": "2", "Demo": "FAILED"}], {"Way": "4.3.0 -> 4.0.5"})
    both = Findings.of_page(page).updated(later, versions)
    assert not Findings.of_page(page).has("4.0.5", "Demo")
    assert [both.has(version, "Demo") for version in (*versions, "4.4.0")] == [False, True, False]
    both.of_rows(["Demo", "Same", "pandas"]).write(page)
    assert page.read_text().splitlines() == [
        "before",
        "<!-- made by make test-matrix -->",
        "",
        "| | all | Spark 4.0.5 | Spark 4.3.0 |",
        "|---|---|---|---|",
        "| Demo |  | FAILED | right |",
        "| Same | 1 |",
        "| pandas |  | 2 | 3 |",
        "",
        "- Old: no: not at all",
        "- Way: 4.3.0 -> 4.0.5",
        "",
        "<!-- end -->",
        "after",
    ]
    later = Findings.of_page(page).updated(Findings([{"Spark": "4.3.1", "new": "1"}], {}), ["4.0.5", "4.3.1"])
    assert later.of_rows(["new"]).columns == [{"Spark": "4.0.5", "new": "not run"}, {"Spark": "4.3.1", "new": "1"}]


def test_the_page_is_of_all_that_is_promised() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    findings = Findings.of_page(ROOT / "docs" / "compatibility.md")
    assert "FAILED" not in page
    releases = [environment.release for environment in ENVIRONMENTS]
    assert releases == ["4.0", "4.1", "4.2", "4.3"]
    assert [column["Spark"] for column in findings.columns] == [environment.spark for environment in ENVIRONMENTS]
    rows = {*VERSIONS, *DEMOS, *(part.about for part in PARTS)}
    for column in findings.columns:
        assert set(column) == {"Spark", *rows}
        assert NOT_RUN not in column.values()
    pythons = {column["Python"].rpartition(".")[0] for column in findings.columns}
    assert pythons == {environment.python for environment in ENVIRONMENTS}
    said = findings.sentences
    assert set(releases) == set(re.findall(r"4\.\d", said["One checkpoint, in format 1"]))
    assert set(releases[1:]) == set(re.findall(r"4\.\d", said["One checkpoint, in format 2"]))
    assert "passed" in said[f"{CLIENT_ALONE.about}, {CLIENT.spark}"]
    assert said[f"Spark {TOO_OLD.spark} is refused"].startswith("`SparkVersionError`: ")


def test_what_is_promised_is_what_the_package_asks_for() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"pyspark>=4.0,<4.4"' in project
    asked_for = {environment.python for environment in ENVIRONMENTS}
    assert asked_for == set(re.findall(r"Python :: (3\.\d+)", project))
