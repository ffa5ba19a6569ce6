"""The processor metadata of a shard: whole numbers by name, as the commit pointer records them. Source: KIP-825."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from statestore.format.json_fields import whole_number

MAX_NAMES: Final = 1_000
"""How many names a shard has room for: each batch reads and writes them all."""
COUNT_PREFIX: Final = "#"
"""What a name begins with whose number is a count of what the shard holds, and no time: rescaling leaves it out."""
_MAX_NAME_BYTES: Final = 249
"""As a store's name, which Kafka Streams uses."""
_LOWEST: Final = -(2**63)


def check_entry(name: Any, value: Any) -> None:
    """Raise ValueError unless this is a name of 1 to 249 bytes of UTF-8, and a whole number of 64 bits, signed."""
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8")) <= _MAX_NAME_BYTES:
        raise ValueError(f"a name must have 1 to {_MAX_NAME_BYTES} bytes of UTF-8, not {str(name)[:20]!r}")
    try:
        whole_number(value, _LOWEST)
    except ValueError as cause:
        raise ValueError(f"{name!r}: {cause}") from cause


def processor_metadata_from_json(entries: Any) -> dict[str, int]:
    """Return what json.loads made of a shard's metadata. Raises ValueError, or AttributeError if it is no mapping."""
    found: Mapping[str, int] = dict(entries.items())
    if len(found) > MAX_NAMES:
        raise ValueError(f"{len(found)} names, a shard has room for {MAX_NAMES}")
    for name, value in found.items():
        check_entry(name, value)
    return dict(found)
