"""The processors on the page are those of the example files, which run."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "migrating-from-spark-state.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("block", "example"), [(0, "customer_totals_in_spark.py"), (1, "customer_totals.py")])
def test_the_body_of_a_processor_is_that_of_its_file(block: int, example: str) -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[block]
    body = [line for line in shown[: shown.index("\n\n\n")].splitlines() if line.startswith("        ")]
    text = (DOCS / "examples" / example).read_text(encoding="utf-8").splitlines()
    assert len(body) > 10
    assert [line for line in text if line in body and line.strip()] == body
