"""How far ahead values are read that are asked for without their keys."""

from statestore import Serde, Stores
from statestore.bytestore.engines.memory import MemoryByteStore


def test_large_values_are_read_ahead_some_megabytes_at_a_time() -> None:
    read = 0

    def size_of(data: bytes) -> int:
        nonlocal read
        read += 1
        return len(data)

    sizes = Serde("sizes", bytes, size_of)
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), sizes, sizes).build(
        MemoryByteStore("s")
    )
    large = 1 << 20
    for number in range(40):
        store.put(number + 1, large)
    values = store.range_values(None, None)
    assert next(values) == large
    assert read <= 4
    assert [*values] == [large] * 39
    values.close()
