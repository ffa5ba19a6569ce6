"""Places of the ends of windows, in columns: those of the scalar functions, and what these refuse."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.keys.due_key import due_key, started_key, window_end_key
from statestore.format.keys.time_key_columns import (
    WindowEnds,
    decode_due_keys,
    decode_window_ends,
    encode_due_keys,
    encode_window_ends,
)
from statestore.format.keys.window_key import MAX_TIME_MS

TIMES = st.integers(0, MAX_TIME_MS)


@given(st.lists(st.tuples(st.binary(max_size=20), TIMES, TIMES)), st.integers(0, 3))
def test_places_of_windows(windows: list[tuple[bytes, int, int]], skipped: int) -> None:
    columns = [pa.array([window[field] for window in windows], type_) for field, type_ in enumerate(TYPES)]
    keys, starts, ends = (column.slice(skipped) for column in columns)
    places = encode_window_ends(WindowEnds(keys, starts.to_numpy(), ends.to_numpy()))
    assert places.to_pylist() == [due_key(end, started_key(start, key)) for key, start, end in windows[skipped:]]
    found = decode_window_ends(pa.concat_arrays([pa.array([b"before"]), places]).slice(1))
    assert [column.tolist() for column in (np.array(found.keys, object), *found[1:])] == [
        column.to_pylist() for column in (keys, starts, ends)
    ]


@given(st.lists(st.tuples(TIMES, st.binary(max_size=20))))
def test_places_of_keys(due: list[tuple[int, bytes]]) -> None:
    times_ms, keys = np.array([time_ms for time_ms, _ in due], np.int64), pa.array([key for _, key in due], pa.binary())
    places = encode_due_keys(times_ms, keys)
    assert places.to_pylist() == [due_key(*each) for each in due]
    found_ms, found = decode_due_keys(pa.concat_arrays([pa.array([b"before"]), places]).slice(1))
    assert (found_ms.tolist(), found) == (times_ms.tolist(), keys)


TYPES = pa.binary(), pa.int64(), pa.int64()


@pytest.mark.parametrize("unsound", [b"", b"t" * 16, b"k" * 17], ids=["empty", "short", "by key"])
def test_what_is_no_place_of_a_window_is_refused_as_the_scalar_function_does(unsound: bytes) -> None:
    sound = due_key(15, started_key(5, b"key"))
    with pytest.raises(FormatError) as scalar:
        window_end_key(unsound)
    with pytest.raises(FormatError) as of_column:
        decode_window_ends(pa.array([sound, unsound, sound], pa.binary()))
    assert str(of_column.value) == "row 1: window end: its place is one of another kind" == f"row 1: {scalar.value}"
