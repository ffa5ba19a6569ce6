"""The processor on the page is that of the example file, which runs."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "migrating-from-spark-state.md").read_text(encoding="utf-8")


def test_the_body_of_a_processor_is_that_of_its_file() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    body = [line for line in shown[: shown.index("\n\n\n")].splitlines() if line.startswith("        ")]
    text = (DOCS / "examples" / "customer_totals.py").read_text(encoding="utf-8").splitlines()
    assert len(body) > 10
    assert [line for line in text if line in body and line.strip()] == body
