"""Times out of columns of keys: what the scalar functions say of each key, and what they refuse."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.keys.time_key_columns import session_times, window_starts
from statestore.format.keys.window_key import (
    MAX_SEQUENCE,
    MAX_TIME_MS,
    encode_session_key,
    encode_window_key,
    split_session_key,
    split_window_key,
)

TIMES = st.integers(0, MAX_TIME_MS)
WINDOWS = st.builds(encode_window_key, st.binary(max_size=20), TIMES, st.integers(0, MAX_SEQUENCE))
SESSIONS = st.tuples(st.binary(max_size=20), TIMES, TIMES).map(
    lambda drawn: encode_session_key(drawn[0], min(drawn[1:]), max(drawn[1:]))
)


@given(st.lists(WINDOWS), st.integers(0, 3))
def test_starts_of_windows(keys: list[bytes], skipped: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)
    assert window_starts(column).tolist() == [split_window_key(key)[1] for key in keys[skipped:]]


@given(st.lists(SESSIONS), st.integers(0, 3))
def test_ends_of_sessions(keys: list[bytes], skipped: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)
    assert session_times(column)[1].tolist() == [split_session_key(key)[2] for key in keys[skipped:]]


@pytest.mark.parametrize("suffix", [b"", b"\0" * 11, b"\x80" + b"\0" * 11, b"\0" * 8 + b"\xff" * 4])
def test_a_key_of_no_window_is_refused_as_the_scalar_function_does(suffix: bytes) -> None:
    assert refused(window_starts, split_window_key, encode_window_key(b"sound", 5), suffix)


@pytest.mark.parametrize(
    "suffix",
    [b"", b"\0" * 15, b"\x80" + b"\0" * 15, b"\0" * 8 + b"\xff" * 8, b"\0" * 15 + b"\1"],
    ids=["none", "short", "negative end", "negative start", "ends before it starts"],
)
def test_a_key_of_no_session_is_refused_as_the_scalar_function_does(suffix: bytes) -> None:
    assert refused(session_times, split_session_key, encode_session_key(b"sound", 5, 6), suffix)


def refused(
    times: Callable[[pa.BinaryArray], np.ndarray], split: Callable[[bytes], object], sound: bytes, unsound: bytes
) -> str:
    """Assert that both refuse a key with the same words, and return them; the column also says which row it is."""
    with pytest.raises(FormatError) as scalar:
        split(unsound)
    with pytest.raises(FormatError) as of_column:
        times(pa.array([sound, sound, unsound, sound], pa.binary()))
    assert type(of_column.value) is type(scalar.value)
    assert str(of_column.value).startswith("row 2: ")
    assert str(of_column.value) == f"row 2: {scalar.value}"
    return str(scalar.value)
