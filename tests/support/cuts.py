"""Bytes that end too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from statestore.errors.data import TruncatedError


def check_cut_is_noticed(
    decode: Callable[[bytes], Any], encoded: bytes, data: st.DataObject, *, least: int = 0, before: bytes = b""
) -> None:
    """Check that what is left of `encoded` is truncated, cut anywhere behind `least` bytes, with `before` in front."""
    cut = data.draw(st.integers(least, len(encoded) - 1), "cut")
    with pytest.raises(TruncatedError):
        decode(before + encoded[:cut])
