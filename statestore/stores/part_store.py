"""What a ready-made part brings along to a topology beside code: its state stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statestore.stores.builder import StoreBuilder


@dataclass(frozen=True)
class PartStore:
    """A state store of an operator or of an interceptor."""

    builder: StoreBuilder[Any]
    entry_keys: str | None = None
    """What the library makes its keys of, one word of `recovery.making.record_keys`: tools find the record's key by it.

    None is not known: then who rescales the state must say it, with `key_of`.
    """
