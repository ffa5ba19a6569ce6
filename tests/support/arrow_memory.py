"""What Arrow allocates, as it counts it itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def counted_memory() -> Iterator[Callable[[], int]]:
    """Hand out what returns how many bytes Arrow held at most at once of what it allocated within."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield lambda: pool.max_memory() or 0
    finally:
        pa.set_memory_pool(before)


_pools: list[pa.MemoryPool] = []
"""Buffers don't keep the pool that they come from, and die with it."""
