"""`HeadersBytesStore`: the stores whose bytes have headers, and the conversions to their format. Source: KIP-1271."""

from __future__ import annotations

from statestore.format.values.value_timestamp_headers import (
    convert_from_plain_to_header_format,
    convert_to_header_format,
)


class HeadersBytesStore:
    """Marks the stores whose bytes have headers; turns stored values without headers into ones with empty headers.

    None stays None. What is on disk is recorded: `StoreSpec.format`.
    """

    convert_to_header_format = staticmethod(convert_to_header_format)
    convert_from_plain_to_header_format = staticmethod(convert_from_plain_to_header_format)


HeaderBytesStore = HeadersBytesStore
"""The KIP's text spells it both ways."""
