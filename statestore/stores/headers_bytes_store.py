"""`HeadersBytesStore`: the conversions to the format with headers, under the name that KIP-1271 gives them."""

from __future__ import annotations

from statestore.format.value_timestamp_headers import (
    convert_from_plain_to_header_format,
    convert_to_header_format,
)


class HeadersBytesStore:
    """Turns stored values without headers into stored values with empty ones; None stays None.

    In Kafka Streams it also marks the stores whose bytes have headers. Here that is recorded: `StoreSpec.format`.
    """

    convert_to_header_format = staticmethod(convert_to_header_format)
    convert_from_plain_to_header_format = staticmethod(convert_from_plain_to_header_format)


HeaderBytesStore = HeadersBytesStore
"""The KIP's text spells it both ways."""
