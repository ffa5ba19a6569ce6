"""Keys go to the partition that Kafka's producer would choose. Expected hashes: Kafka's own UtilsTest and murmur2."""

import random
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.format.keys.partitioner import murmur2_column, partition_column, partition_of

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def murmur2(data: bytes) -> int:
    """The algorithm one byte at a time, as Utils.murmur2 states it; unsigned."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_kafkas_own_vectors() -> None:
    found = murmur2_column(pa.array(list(KNOWN), pa.binary())).astype("int32").tolist()
    assert found == list(KNOWN.values())


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_columns_agree_with_the_plain_algorithm(keys: list[bytes], partitions: int) -> None:
    column = pa.array([b"before", *keys], pa.binary())[1:]
    assert murmur2_column(column).tolist() == [murmur2(key) for key in keys]
    expected = [(murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert partition_column(column, partitions).tolist() == expected
    assert [partition_of(key, partitions) for key in keys] == expected


def test_keys_of_all_sizes_beside_each_other_agree_and_a_huge_one_is_not_a_turn_for_each_word() -> None:
    sizes = [size for size in range(70) for _ in range(random.Random(5).randint(1, 4))]
    keys = [random.Random(number).randbytes(size) for number, size in enumerate([*sizes, 300_000, *sizes, 0, 80_001])]
    began_s = time.process_time()
    found = murmur2_column(pa.array(keys, pa.binary())).tolist()
    assert time.process_time() - began_s < 0.5
    assert found == [murmur2(key) for key in keys]


def test_null_keys_and_no_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="null"):
        murmur2_column(pa.array([b"a", None], pa.binary()))
    with pytest.raises(ValueError, match="partitions"):
        partition_column(pa.array([b"a"], pa.binary()), 0)
