"""Which windows a timestamp belongs to, what changing one of their spans leaves alone, and what is refused.

Kafka's TimeWindowsTest, SlidingWindowsTest, SessionWindowsTest and JoinWindowsTest.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statestore.dsl import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

SIZE, OTHER_SIZE, GRACE = 123, 456, 1024
tumbling, sliding = TimeWindows.of_size_with_no_grace, SlidingWindows.of_time_difference_with_no_grace
sessions, join = SessionWindows.of_inactivity_gap_with_no_grace, JoinWindows.of_time_difference_with_no_grace


@pytest.mark.parametrize(
    ("windows", "timestamp_ms", "starts"),
    [
        pytest.param(tumbling(12).advance_by(5), 21, [10, 15, 20], id="hopping"),
        pytest.param(tumbling(6).advance_by(5), 7, [5], id="barely overlapping hopping"),
        pytest.param(tumbling(12), 21, [12], id="tumbling"),
    ],
)
def test_should_compute_windows(windows: TimeWindows, timestamp_ms: int, starts: list[int]) -> None:
    assert list(windows.starts(timestamp_ms)) == starts


@pytest.mark.parametrize("size", [3, SIZE, OTHER_SIZE])
def test_grace(size: int) -> None:
    without = tumbling(size), sliding(size), sessions(size), join(size)
    assert [windows.grace_ms for windows in without] == [0] * 4
    given = (
        TimeWindows.of_size_and_grace(size, GRACE),
        SlidingWindows.of_time_difference_and_grace(size, GRACE),
        SessionWindows.of_inactivity_gap_and_grace(size, GRACE),
        JoinWindows.of_time_difference_and_grace(size, GRACE),
    )
    assert [windows.grace_ms for windows in given] == [GRACE] * 4


def test_valid_join_windows() -> None:
    """Kafka counts SIZE and OTHER_SIZE from a record: both ends may lie on the same side of it."""
    made = [
        *(join(OTHER_SIZE), join(OTHER_SIZE).before(SIZE), join(OTHER_SIZE).before(0)),
        *(join(OTHER_SIZE).before(-SIZE), join(OTHER_SIZE).before(-OTHER_SIZE)),
        *(join(OTHER_SIZE).after(SIZE), join(OTHER_SIZE).after(0)),
        *(join(OTHER_SIZE).after(-SIZE), join(OTHER_SIZE).after(-OTHER_SIZE)),
    ]
    sizes = [912, 579, 456, 333, 0, 579, 456, 333, 0]
    assert [windows.size_ms for windows in made] == sizes


def test_before_and_after_should_not_modify_grace() -> None:
    windows = JoinWindows.of_time_difference_and_grace(SIZE, OTHER_SIZE)
    assert [windows.before(SIZE * 1000).grace_ms, windows.after(SIZE * 1000).grace_ms] == [OTHER_SIZE] * 2


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: tumbling(0), id="time windows of size 0"),
        pytest.param(lambda: tumbling(-1), id="time windows of a negative size"),
        pytest.param(lambda: tumbling(SIZE).advance_by(0), id="an advance of 0"),
        pytest.param(lambda: tumbling(SIZE).advance_by(-1), id="a negative advance"),
        pytest.param(lambda: tumbling(SIZE).advance_by(SIZE + 1), id="an advance beyond the size"),
        pytest.param(lambda: TimeWindows.of_size_and_grace(3, -1), id="time windows of a negative grace"),
        pytest.param(lambda: sliding(-1), id="sliding windows of a negative difference"),
        pytest.param(lambda: SlidingWindows.of_time_difference_and_grace(10, -1), id="sliding windows, negative grace"),
        pytest.param(lambda: sessions(-1), id="sessions of a negative gap"),
        pytest.param(lambda: SessionWindows.of_inactivity_gap_and_grace(3, -1), id="sessions of a negative grace"),
        pytest.param(lambda: join(-1), id="join windows of a negative difference"),
        pytest.param(lambda: JoinWindows.of_time_difference_and_grace(3, -1), id="join windows of a negative grace"),
        pytest.param(lambda: join(SIZE).after(-SIZE - 1), id="join windows that end before they begin"),
        pytest.param(lambda: join(SIZE).before(-SIZE - 1), id="join windows that begin after they end"),
    ],
)
def test_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must"):
        make()
