"""What comes from outside is decoded, or refused with an error that says what of the layout is wrong: every codec."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError, VarintError
from statestore.format.offset_checkpoint import decode_offset_checkpoint
from statestore.format.position import decode_position
from statestore.format.records.header_bytes import decode_headers, encode_headers
from statestore.format.records.message_v0_v1 import decode_message
from statestore.format.records.record_v2 import decode_record
from statestore.format.values.value_timestamp_headers import (
    plain_value,
    split_value_timestamp_headers,
    timestamped_value,
)
from statestore.kip82.early_headers import decode_early_headers, encode_early_headers
from statestore.kip82.id_header_bytes import IdForm, decode_id_headers, encode_id_headers
from statestore.kip82.text_headers import decode_text_map, encode_text_map
from tests.support.record_bytes import message_bytes, record_bytes

Decode = Callable[[bytes], Any]
FOO = "06666f6f"  # of Avro: the size of a text, and its UTF-8


def ids_as_varints(data: bytes) -> Any:
    return decode_id_headers(data, IdForm.VARINT)


def ids_of_four_bytes(data: bytes) -> Any:
    return decode_id_headers(data, IdForm.FIXED)


def malformed(decodes: list[Decode], *rows: tuple[Any, ...]) -> Iterator[Any]:
    """Yield cases of (bytes, or hex; the error; what of the layout it names; and, where it matters, what it says)."""
    for decode in decodes:
        for given_bytes, error, what, *problem in rows:
            data = bytes.fromhex(given_bytes) if isinstance(given_bytes, str) else given_bytes
            yield pytest.param(decode, data, error, what, "".join(problem), id=f"{decode.__name__} {data.hex()}")


MALFORMED = [
    *malformed(
        [decode_headers],
        ("80", TruncatedError, "header count"),
        ("ffffffffff", VarintError, "header count"),
        ("02", TruncatedError, "headers"),
        ("040001", TruncatedError, "headers"),
        ("feffffff0f0000", TruncatedError, "headers"),
        ("020101", NegativeLengthError, "header key"),
        ("028101ff", NegativeLengthError, "header key"),
        ("0280", TruncatedError, "headers"),
        ("028080", TruncatedError, "header key size"),
        ("020461", TruncatedError, "header key"),
        ("02046162", TruncatedError, "header value size"),
        ("02ffffffffff", VarintError, "header key size"),
        ("02026103", NegativeLengthError, "header value"),
        ("0202610462", TruncatedError, "header value"),
        ("020261feffffff0f", TruncatedError, "header value"),
        ("02026180", TruncatedError, "header value size"),
        ("020261ffffffffff", VarintError, "header value size"),
        ("020261ffffffff1f", FormatError, "header value size"),
    ),
    *malformed(
        [decode_record],
        (b"", TruncatedError, "record size"),
        (b"\x80", TruncatedError, "record size"),
        (b"\xff" * 5, VarintError, "record size"),
        (b"\x01", NegativeLengthError, "record"),
        ("feffffff0f00", TruncatedError, "record"),
        (b"\x00", TruncatedError, "record attributes"),
        (record_bytes("00"), TruncatedError, "record timestamp delta"),
        (record_bytes("00" + "ff" * 10 + "00"), VarintError, "record timestamp delta"),
        (record_bytes("00" + "ff" * 9 + "02" + "00010100"), FormatError, "record timestamp delta"),
        (record_bytes("0000"), TruncatedError, "record offset delta"),
        (record_bytes("000000"), TruncatedError, "record key size"),
        (record_bytes("0000000461"), TruncatedError, "record key"),
        (record_bytes("000000feffffff0f61"), TruncatedError, "record key"),
        (record_bytes("00000001"), TruncatedError, "record value size"),
        (record_bytes("000000010461"), TruncatedError, "record value"),
        (record_bytes("0000000101"), TruncatedError, "header count"),
        (record_bytes("000000010101"), NegativeLengthError, "headers"),
        (record_bytes("0000000101feffffff0f0001"), TruncatedError, "headers"),
        (record_bytes("0000000101020101"), NegativeLengthError, "header key"),
        (record_bytes("0000000101020461"), TruncatedError, "header key"),
        (record_bytes("000000010102026180"), TruncatedError, "header value size"),
        (record_bytes("00000001010202610462"), TruncatedError, "header value"),
        (record_bytes("00000001010000"), FormatError, "record"),
    ),
    *malformed(
        [decode_message],
        (struct.pack(">qi", 0, -1), NegativeLengthError, "message"),
        (struct.pack(">qi", 0, 2**31 - 1), TruncatedError, "message"),
        (struct.pack(">qi", 0, 3) + b"abc", TruncatedError, "message checksum"),
        (message_bytes(""), TruncatedError, "message head"),
        (message_bytes("0200"), FormatError, "message"),
        (message_bytes("0001"), FormatError, "message"),
        (message_bytes("0100ffffffff"), TruncatedError, "message timestamp"),
        (message_bytes("0000ffff"), TruncatedError, "message key size"),
        (message_bytes("00000000000261"), TruncatedError, "message key"),
        (message_bytes("0000ffffffffff"), TruncatedError, "message value size"),
        (message_bytes("0000ffffffff7fffffff"), TruncatedError, "message value"),
        (message_bytes("0000ffffffffffffffff00"), FormatError, "message"),
    ),
    *malformed(
        [split_value_timestamp_headers, plain_value, timestamped_value],
        ("", TruncatedError, "headers size"),
        ("80", TruncatedError, "headers size"),
        ("8080", TruncatedError, "headers size"),
        ("ffffffffff" + "00" * 20, VarintError, "headers size"),
        ("ffffffff1f" + "00" * 20, FormatError, "headers size"),
        ("01" + "00" * 20, NegativeLengthError, "headers"),
        ("8101" + "00" * 20, NegativeLengthError, "headers"),
        ("04" + "00", TruncatedError, "headers"),
        ("8001" + "00" * 63, TruncatedError, "headers"),
        ("feffffff0f" + "00" * 20, TruncatedError, "headers"),
        ("00" + "00" * 7, TruncatedError, "timestamp"),
        ("04" + "00" * 9, TruncatedError, "timestamp"),
        ("8001" + "00" * 71, TruncatedError, "timestamp"),
    ),
    *malformed(
        [decode_position],
        ("", TruncatedError, "position", "needs 1 bytes"),
        ("01 00000000", FormatError, "position", "version 1 is unknown"),
        ("00 0000", TruncatedError, "position", "needs 4 bytes, only 2"),
        ("00 ffffffff", NegativeLengthError, "position", "-1"),
        ("00 00000001 ffffffff 00000000", NegativeLengthError, "position", "-1"),
        ("00 00000001 00000001 61 ffffffff", NegativeLengthError, "position", "-1"),
        ("00 10000000 00000000", TruncatedError, "position", "needs 2147483648 bytes"),
        ("00 00000001 00000005 616161", TruncatedError, "position", "needs 8 bytes"),
        ("00 00000001 00000001 ff 00000000", FormatError, "position", "not UTF-8: ff"),
        (
            bytes.fromhex("00 00000001 00000001 61 00000001 00000000"),
            TruncatedError,
            "position",
            "needs 12 bytes, only 4",
        ),
    ),
    *malformed(
        [decode_offset_checkpoint],
        (b"", FormatError, "offset checkpoint", "has 0 lines"),
        (b"0\n", FormatError, "offset checkpoint", "has 1 lines"),
        (b"1\n0\n", FormatError, "offset checkpoint", "version 1 is unknown"),
        (b"x\n0\n", FormatError, "offset checkpoint", "version or count is not an integer of 32 bits: 'x'"),
        (b"0\n 1\n", FormatError, "offset checkpoint", "not an integer of 32 bits: ' 1'"),
        (b"0\n2\na 0 1\n", FormatError, "offset checkpoint", "has 1 offsets, and says that it has 2"),
        (b"0\n2\na 0 1\na 0 2\n", FormatError, "offset checkpoint", "has 1 offsets"),
        (b"0\n1\na 0\n", FormatError, "offset checkpoint", "not a line of topic, partition and offset: 'a 0'"),
        (b"0\n1\n a 0 1\n", FormatError, "offset checkpoint", "not a line"),
        (b"0\n1\na 2147483648 1\n", FormatError, "offset checkpoint", "partition is not an integer of 32 bits"),
        (b"0\n1\na 0 9223372036854775808\n", FormatError, "offset checkpoint", "offset is not an integer of 64 bits"),
        (b"0\n0\n\n", FormatError, "offset checkpoint", "not a line"),
    ),
    *malformed(
        [decode_early_headers],
        ("80", TruncatedError, "early header size"),
        ("ffffffffff", VarintError, "early header size"),
        ("ffffffff1f", FormatError, "early header size"),
        ("ffffffff0f", TruncatedError, "early header"),
        ("0401", TruncatedError, "early header"),
        ("00", TruncatedError, "early header key size"),
        ("0180", TruncatedError, "early header key size"),
        ("020261", TruncatedError, "early header key"),
        ("06ffffffff0f61", TruncatedError, "early header key"),
        ("0201ff", FormatError, "early header key"),
    ),
    *malformed(
        [ids_as_varints],
        ("01", NegativeLengthError, "id headers"),
        ("feffffff0f0000", TruncatedError, "id headers"),
        ("02ffffffffff00", VarintError, "header id"),
        ("020203", NegativeLengthError, "id header value"),
        ("02020461", TruncatedError, "id header value"),
        ("02020000", FormatError, "id headers"),
    ),
    *malformed(
        [ids_of_four_bytes],
        ("0200000001", TruncatedError, "id headers"),
        ("020000000180", TruncatedError, "id header value size"),
        ("0400000001080000000000", TruncatedError, "header id"),
    ),
    *malformed(
        [decode_text_map],
        ("ff" * 10, VarintError, "map block count"),
        ("feffffffffffffffff01", TruncatedError, "map block"),
        ("ffffffffffffffffff0100", TruncatedError, "map block"),
        ("02010000", NegativeLengthError, "map key"),
        ("02000100", NegativeLengthError, "map value"),
        ("02feffffffffffffffff010000", TruncatedError, "map key"),
        ("0202ff0000", FormatError, "map key"),
        ("020002ff00", FormatError, "map value"),
        ("040000000000", FormatError, "map"),
        ("02000002000000", FormatError, "map"),
        ("0000", FormatError, "map"),
        ("0101000000", NegativeLengthError, "map block"),
        ("010e" + FOO + "0261" + "00", FormatError, "map block"),
        ("010a" + FOO + "0261" + "00", TruncatedError, "map value"),
    ),
]


@pytest.mark.parametrize(("decode", "data", "error", "what", "problem"), MALFORMED)
def test_malformed_bytes(decode: Decode, data: bytes, error: type[FormatError], what: str, problem: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode(data)
    assert type(caught.value) is error
    assert caught.value.what == what
    assert re.search(problem, caught.value.problem)


@pytest.mark.parametrize(
    ("decode", "encode"),
    [
        (decode_headers, encode_headers),
        (decode_early_headers, encode_early_headers),
        (ids_as_varints, partial(encode_id_headers, form=IdForm.VARINT)),
        (ids_of_four_bytes, partial(encode_id_headers, form=IdForm.FIXED)),
        (decode_text_map, encode_text_map),
    ],
)
@given(st.binary(max_size=40))
def test_any_bytes_decode_or_raise_a_format_error(decode: Decode, encode: Callable[[Any], bytes], data: bytes) -> None:
    try:
        decoded = decode(data)
    except FormatError:
        return
    assert decode(encode(decoded)) == decoded
