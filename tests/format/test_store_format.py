"""The numbers are on disk."""

from __future__ import annotations

from statestore.format.values.store_format import StoreFormat


def test_numbers_never_change() -> None:
    numbers = {format_.name: int(format_) for format_ in StoreFormat}
    assert numbers == {"PLAIN": 0, "TIMESTAMPED": 1, "TIMESTAMPED_WITH_HEADERS": 2, "WITH_HEADERS": 3}
