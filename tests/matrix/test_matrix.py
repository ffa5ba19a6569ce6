"""What the matrix runs is there, and its page says what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.environments import CLIENT, ENVIRONMENTS, ROOT
from tests.matrix.page import Findings
from tests.matrix.parts import CLIENT_ALONE, DEMOS, PARTS
from tests.matrix.results import in_words, is_right, results_of

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
    assert [about for about in said if is_right(found[about])] == ["Settings of a query alone"]
    assert in_words({}) == "not run"
    assert not is_right({})


def test_a_column_takes_the_place_of_the_one_before_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- made by make test-matrix -->\nold\n<!-- end -->\nafter\n")
    versions = ["4.0.5", "4.3.0"]
    nothing = Findings.of_page(page)
    assert nothing == Findings([], [])
    two = [{"Spark": "4.3.0", "pandas": "3", "Demo": "right"}, {"Spark": "4.0.5", "pandas": "1"}]
    nothing.updated(two, ["4.0.5 -> 4.3.0"], versions).write(page)
    Findings.of_page(page).updated([{"Spark": "4.0.5", "pandas": "2"}], [], versions).write(page)
    assert page.read_text().splitlines() == [
        "before",
        "<!-- made by make test-matrix -->",
        "",
        "| | Spark 4.0.5 | Spark 4.3.0 |",
        "|---|---|---|",
        "| pandas | 2 | 3 |",
        "| Demo | not run | right |",
        "",
        "- 4.0.5 -> 4.3.0",
        "",
        "<!-- end -->",
        "after",
    ]
    later = Findings.of_page(page).updated([{"Spark": "4.3.1"}], ["4.3.1"], ["4.0.5", "4.3.1"])
    assert [column["Spark"] for column in later.columns] == ["4.0.5", "4.3.1"]
    assert later.ways == ["4.3.1"]


def test_the_page_is_of_the_environments_that_there_are() -> None:
    path = ROOT / "docs" / "compatibility.md"
    page = path.read_text(encoding="utf-8")
    found = [column["Spark"] for column in Findings.of_page(path).columns]
    assert found == [environment.spark for environment in ENVIRONMENTS if environment.spark in found]
    assert "FAILED" not in page
    assert CLIENT.spark in {environment.spark for environment in ENVIRONMENTS}
    assert [environment.release for environment in ENVIRONMENTS] == [f"4.{minor}" for minor in range(4)]
    assert '"pyspark>=4.0,<4.4"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
