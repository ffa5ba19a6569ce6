"""Micro-batches of tests have few records: steps that take either take columns from the first one on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statestore.processor import column_sources


@pytest.fixture(autouse=True, scope="module")
def _few_rows_go_in_columns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(column_sources, "_ROWS_MIN", 1)
        yield
