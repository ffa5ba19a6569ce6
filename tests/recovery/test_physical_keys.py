"""Where a store keeps the keys of its changelog records: those of windows and sessions in the segment of their time."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.errors import FormatError
from statestore.format.session_key import encode_session_key
from statestore.format.store_format import StoreFormat
from statestore.format.window_key import encode_window_key
from statestore.recovery.commit.changelog import physical_key, physical_keys

TIMES = st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1)), max_size=20)
"""Numbers of segments, and how far from their beginning."""


@given(st.integers(2, 1_000), TIMES, st.binary(max_size=5))
def test_a_segment_begins_with_its_first_millisecond(
    interval_ms: int, times: list[tuple[int, int]], key: bytes
) -> None:
    times_ms = [max(0, number * interval_ms + off_ms) for number, off_ms in times]
    windows = [encode_window_key(key, time_ms, 7) for time_ms in times_ms]
    sessions = [encode_session_key(key, 0, time_ms) for time_ms in times_ms]
    of_windows = StoreSpec("s", StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS, 9_000, interval_ms, 1)
    of_sessions = StoreSpec("s", StoreKind.SESSION, StoreFormat.WITH_HEADERS, 9_000, interval_ms)
    for spec, keys in ((of_windows, windows), (of_sessions, sessions)):
        places = [segment_prefix(at // interval_ms) + stored for at, stored in zip(times_ms, keys, strict=True)]
        assert [physical_key(spec, stored) for stored in keys] == places
        assert physical_keys(spec, pa.array(keys, pa.binary())) == places


def test_keys_of_a_key_value_store_stay_as_they_are() -> None:
    spec = StoreSpec("store", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)
    assert physical_keys(spec, pa.array([b"", b"k" * 12], pa.binary())) == [b"", b"k" * 12]


def test_a_key_that_is_no_window_s_is_refused() -> None:
    spec = StoreSpec("store", StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS, 100, 10, 10)
    with pytest.raises(FormatError, match="row 1"):
        physical_keys(spec, pa.array([encode_window_key(b"k", 5), b"short"], pa.binary()))
    assert physical_keys(spec, pa.array([], pa.binary())) == []
