"""Windowed keys in topics: Kafka's bytes, and columns like single keys."""

import pickle
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Serde, Serdes, Windowed
from statestore.dsl.column_types import windowed_column
from statestore.dsl.windowed_serdes import session_windowed_serde, time_windowed_serde
from statestore.errors import DeserializationError, SerializationError
from statestore.format.serde import column_of

WINDOWS = time_windowed_serde(Serdes.string(), 10)
SESSIONS = session_windowed_serde(Serdes.string())
TIMES = st.integers(0, 2**63 - 11)


def test_bytes_are_those_of_kafka() -> None:
    assert WINDOWS.serialize(Windowed("k", 258, 268)) == b"k" + (258).to_bytes(8, "big")
    assert SESSIONS.serialize(Windowed("k", 2, 5)) == b"k" + (5).to_bytes(8, "big") + (2).to_bytes(8, "big")


def test_the_size_of_windows_is_a_time_span() -> None:
    assert time_windowed_serde(Serdes.string(), timedelta(milliseconds=10)).layout == WINDOWS.layout
    for wrong in (-1, timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="window_size"):
            time_windowed_serde(Serdes.string(), wrong)


def test_an_end_beyond_all_time_is_the_end_of_time() -> None:
    last = 2**63 - 1
    assert WINDOWS.deserialize(WINDOWS.serialize(Windowed("k", last - 3, last))).end_ms == last


@pytest.mark.parametrize("serde", [WINDOWS, SESSIONS])
def test_bytes_without_times_are_refused(serde: Serde[Windowed]) -> None:
    with pytest.raises(DeserializationError):
        serde.deserialize(b"1234567")
    with pytest.raises(DeserializationError):
        serde.columns.deserialize(pa.array([WINDOWS.serialize(Windowed("key-and-more", 0, 10)), b"1234567"]))


@pytest.mark.parametrize("serde", [WINDOWS, SESSIONS])
@given(st.lists(st.tuples(st.text(max_size=3), TIMES), max_size=5))
def test_columns_are_like_single_keys(serde: Serde[Windowed], drawn: list[tuple[str, int]]) -> None:
    serde = pickle.loads(pickle.dumps(serde))
    keys = [Windowed(key, start, start + 10) for key, start in drawn]
    starts = np.array([key.start_ms for key in keys], np.int64)
    column = windowed_column(pa.array([key.key for key in keys], pa.string()), starts, starts + 10)
    written = [serde.serialize(key) for key in keys]
    assert serde.columns is not None
    assert serde.columns.serialize(column).to_pylist() == written
    assert serde.columns.deserialize(pa.array(written, pa.binary())).to_pylist() == keys
    assert [serde.deserialize(data) for data in written] == keys
    with_null = [None, *written, None]
    assert serde.columns.deserialize(pa.array(with_null, pa.binary())).to_pylist() == [None, *keys, None]


def test_values_become_a_column_also_where_all_are_null() -> None:
    serde = time_windowed_serde(Serdes.json(), 10)
    for values in ([None], [Windowed({"k": 1}, 5, 15), None]):
        column = column_of(serde, values)
        assert column is not None
        assert column.to_pylist() == values


def test_another_column_is_refused() -> None:
    assert WINDOWS.columns is not None
    with pytest.raises(SerializationError, match="windowed"):
        WINDOWS.columns.serialize(pa.array(["k"]))
