"""Chunks: all rows in order, and never too many of them at once."""

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from statestore.bytestore.chunks import chunks, key_and_value_sizes, slices

ROWS = st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=40)), max_size=400)


@given(ROWS, st.integers(1, 200), st.integers(1, 2_000))
def test_all_rows_come_in_order_and_chunks_are_bounded(
    rows: list[tuple[bytes, bytes | None]], max_rows: int, max_bytes: int
) -> None:
    found = list(chunks(rows, max_rows=max_rows, max_bytes=max_bytes))
    assert [row for chunk in found for row in chunk] == rows
    assert all(chunk and len(chunk) <= max_rows for chunk in found)
    sizes = [sum(key_and_value_sizes(chunk)) for chunk in found]
    assert all(size <= max_bytes or len(chunk) == 1 for chunk, size in zip(found, sizes, strict=True))
    # None is smaller than it must be.
    for chunk, size, following in zip(found, sizes, found[1:], strict=False):
        assert len(chunk) == max_rows or size + sum(key_and_value_sizes(following[:1])) > max_bytes or size >= max_bytes


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 80))
def test_slices_are_bounded_and_lose_no_row(sizes: list[int], max_bytes: int) -> None:
    found = list(slices(np.array(sizes, np.int64), max_bytes))
    assert [row for piece in found for row in range(piece.start, piece.stop)] == list(range(len(sizes)))
    assert all(sum(sizes[piece]) <= max_bytes or piece.stop - piece.start == 1 for piece in found)


def test_large_rows_do_not_pile_up() -> None:
    held = 0
    most = 0

    def rows() -> Iterator[tuple[bytes, bytes]]:
        nonlocal held, most
        for number in range(1_000):
            held += 1
            most = max(most, held)
            yield b"%d" % number, bytes(1_000)

    for chunk in chunks(rows(), max_bytes=100_000):
        held -= len(chunk)
    assert held == 0
    assert most <= 100 + 100 // 4


def test_nothing_is_taken_before_it_is_asked_for() -> None:
    taken: list[int] = []
    left = chunks((taken.append(number) or number for number in range(10)), lambda chunk: [1] * len(chunk), max_rows=3)
    assert taken == []
    assert next(left) == [0, 1, 2]
    assert taken == [0, 1, 2]


def test_sizes_of_rows_that_begin_with_key_and_value() -> None:
    assert key_and_value_sizes([(b"key", b"value"), (b"key", None), (b"", b"")]) == [8, 3, 0]
