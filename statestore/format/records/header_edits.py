"""Headers looked up, added and removed in a whole column of header bytes, without a Python object a row.

Each does to every row what Headers does to one, and writes what Headers writes, in the layout of `header_bytes`. A null
row counts as one without headers. All raise TypeError for a column that is not binary, and FormatError naming the row
whose bytes are no headers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import as_binary_array
from statestore.format.records.header_columns import decode_header_column, encode_header_column
from statestore.format.records.header_lists import add_to_lists, headers_with_key, remove_from_lists, rows_of_headers


def last_header_column(headers: pa.BinaryArray, key: str) -> pa.BinaryArray:
    """Return the value of each row's last header `key`; null where there is none, or its value is null."""
    decoded = decode_header_column(headers)
    found = np.flatnonzero(headers_with_key(decoded, key))
    places = np.full(len(headers), -1, np.int64)
    places[rows_of_headers(decoded)[found]] = found  # of several for one row, the last one stays
    return decoded.flatten().field("value").take(pa.array(places, mask=places < 0))


def add_header_column(headers: pa.BinaryArray, key: str, values: pa.BinaryArray | bytes | None) -> pa.BinaryArray:
    """Return the rows with one more header each, behind the others; `values` has one for each row, or is one for all.

    Raises ValueError if there are not as many values as rows.
    """
    return encode_header_column(add_to_lists(decode_header_column(headers), key, values))


def remove_header_column(headers: pa.BinaryArray, key: str) -> pa.BinaryArray:
    """Return the rows without any header `key`; a column where nobody has one is returned as it is."""
    headers = as_binary_array(headers, "headers")
    decoded = decode_header_column(headers)
    kept = remove_from_lists(decoded, [key])
    return headers if kept is decoded else encode_header_column(kept)
