"""Fixed work that shares nothing with the project, of the kinds that its code consists of: what time is compared with.

A machine that is slow, or shared, is slow at these too. They must stay as they are: whoever changes one must record the
baseline of `make bench-check` anew.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ENTRIES = 20_000
ROWS = 4_000
"""Of columns: few enough to stay in caches. Whether an allocator gives larger ones back to the system after
each kernel changes from process to process, and with it the time by a third."""


class Entry:
    """An object as a record is one: a few fields, and a method that makes another."""

    __slots__ = ("key", "number", "value")

    def __init__(self, key: bytes, value: bytes, number: int) -> None:
        self.key, self.value, self.number = key, value, number

    def following(self, value: bytes) -> Entry:
        """Return the entry that comes after this one."""
        return Entry(self.key, value, self.number + 1)


class PythonLoop:
    """Calls, objects, slices of bytes, and a dict: what a record costs that goes through Python code."""

    def __init__(self) -> None:
        keys = [b"%016d" % number for number in range(ENTRIES)]
        self._keys = random.Random(1).choices(keys, k=ENTRIES)
        self._value = b"v" * 160

    def run(self) -> None:
        """Go through all entries."""
        held: dict[bytes, bytes] = {}
        for key in self._keys:
            entry = Entry(key, held.get(key, self._value), 0)
            for _ in range(4):
                size = int.from_bytes(entry.value[:8], "big") & 7
                entry = entry.following(entry.value[8:16] + entry.value[8 - size : 8] + entry.value[16:])
            held[key] = entry.number.to_bytes(8, "big") + entry.value


class ColumnKernels:
    """Columns sorted, taken, cut and joined: what a record costs that goes through Arrow and numpy."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._keys = pa.array([b"%016d" % number for number in rng.integers(0, ROWS, ROWS)], pa.binary())
        self._values = pa.array([b"%0160d" % number for number in range(ROWS)], pa.binary())

    def run(self) -> None:
        """Go through all rows."""
        encoded = self._keys.dictionary_encode()
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        values = self._values.take(pa.array(order))
        joined = pc.binary_join_element_wise(pc.binary_slice(values, 0, 8), values, b"")
        sizes = pc.binary_length(joined).to_numpy()
        starts = np.cumsum(sizes) - sizes
        whole = np.frombuffer(joined.buffers()[2], np.uint8)
        whole[np.repeat(starts, 8) + np.tile(np.arange(8), len(starts))].tobytes()
