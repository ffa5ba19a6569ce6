"""Stories of rescaling under event time find nothing wrong."""

from __future__ import annotations

import pytest

from tests.simulation.event_time import simulate


@pytest.mark.parametrize("seed", [1, 19, 23, 24, 29, 70])
def test_what_was_promised_comes(seed: int) -> None:
    """In 23, a session that had been ahead took its store so far that it hid what was still open."""
    assert simulate(seed) is None
