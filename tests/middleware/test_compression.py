"""Values are compressed where that pays, come back as they were, and can't become larger than is allowed."""

from __future__ import annotations

import gzip
import json
import pickle
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from statestore import ConsumerRecord, Headers, ProducerRecord
from statestore.errors import ConfigException
from statestore.errors.middleware import (
    ChainOrderError,
    CompressedValueError,
    DecompressionLimitError,
    ExtraMissingError,
)
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.middleware import Chain, Interceptor
from statestore.middleware.size.compression import COMPRESSION_HEADER, Compression, ContentTypes, train_dictionary

TEXT = b"the same words again and again, " * 100
RNG = np.random.default_rng(7)
NOISE = RNG.bytes(3000)
SAMPLES = [
    json.dumps({"customer": i * 7919 % 1000, "amount": i * 31 % 977, "currency": "EUR", "status": "paid"}).encode()
    for i in range(500)
]
DICTIONARIES = {7: train_dictionary(SAMPLES, size_bytes=2048), 8: train_dictionary(SAMPLES[250:], size_bytes=1024)}
HEADERS = [("trace", b"\x01"), ("trace", None)]


def emitted(interceptor: Interceptor, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = HEADERS):
    (record,) = Chain([interceptor]).emit(ProducerRecord("t", key=b"k", value=value, headers=headers))
    return record


def ingested(interceptor: Interceptor, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()):
    (record,) = Chain([interceptor]).ingest(ConsumerRecord("t", 0, 5, key=b"k", value=value, headers=headers))
    return record


def marked(mark: bytes | None) -> list[tuple[str, bytes | None]]:
    return [(COMPRESSION_HEADER, mark)]


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_b14_a_value_that_gets_smaller_is_compressed_and_comes_back(codec: str) -> None:
    sent = emitted(Compression(codec), TEXT)
    assert len(sent.value) < len(TEXT) / 10
    assert list(sent.headers) == [*HEADERS, (COMPRESSION_HEADER, codec.encode())]
    back = ingested(Compression(), sent.value, list(sent.headers))
    assert (back.value, list(back.headers)) == (TEXT, HEADERS)
    assert (back.topic, back.partition, back.offset, back.key) == ("t", 0, 5, b"k")


@pytest.mark.parametrize("value", [None, b"", b"a" * 63, NOISE, gzip.compress(TEXT, mtime=0), b"\x89PNG" + TEXT])
def test_b14_what_would_not_be_smaller_is_untouched(value: bytes | None) -> None:
    sent = emitted(Compression(), value)
    assert (sent.value, list(sent.headers)) == (value, HEADERS)


def test_b14_the_header_counts_as_a_part_of_the_size() -> None:
    always = Compression("gzip", min_bytes=0)
    lengths = [(n, len(gzip.compress(b"a" * n, 6, mtime=0))) for n in range(30, 60)]
    for length, compressed in lengths:
        sent = emitted(always, b"a" * length)
        if sent.value != b"a" * length:
            assert compressed + 1 + len(COMPRESSION_HEADER) + 1 + len("gzip") < length
    assert len(emitted(always, b"a" * 38).value) == 38 > lengths[8][1], "smaller, but for the header"


def test_small_records_get_smaller_by_a_dictionary_and_dictionaries_are_rotated() -> None:
    old = Compression(dictionaries={7: DICTIONARIES[7]}, dictionary=7, min_bytes=16)
    new = Compression(dictionaries=DICTIONARIES, dictionary=8, min_bytes=16)
    without = Compression(min_bytes=16)
    sent = emitted(old, SAMPLES[3])
    assert sent.headers.last_header(COMPRESSION_HEADER).value == b"zstd:7"
    assert len(sent.value) < len(SAMPLES[3]) / 2
    assert emitted(without, SAMPLES[3]).value == SAMPLES[3], "by itself it does not get smaller"
    assert emitted(new, SAMPLES[3]).headers.last_header(COMPRESSION_HEADER).value == b"zstd:8"
    for reader in (old, new):
        assert ingested(reader, sent.value, list(sent.headers)).value == SAMPLES[3]
    with pytest.raises(CompressedValueError, match=r"needs the dictionary 7, known are \[\]"):
        ingested(without, sent.value, list(sent.headers))
    with pytest.raises(CompressedValueError):  # another dictionary under the same id
        ingested(Compression(dictionaries={7: DICTIONARIES[8]}), sent.value, list(sent.headers))


def zstd_without_size(value: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return stream.compress(value) + stream.flush()


BOMB = b"\x00" * 2_000_000


@pytest.mark.parametrize(
    ("mark", "data"),
    [
        (b"zstd", zstandard.compress(BOMB)),
        (b"zstd", zstd_without_size(BOMB)),
        (b"gzip", gzip.compress(BOMB, mtime=0)),
        (b"gzip", gzip.compress(BOMB[:600_000], mtime=0) * 2),
    ],
    ids=["zstd", "zstd without size", "gzip", "gzip members"],
)
def test_a_bomb_is_refused_before_it_is_made(mark: bytes, data: bytes) -> None:
    with pytest.raises(DecompressionLimitError) as raised:
        ingested(Compression(max_bytes=1_000_000), data, marked(mark))
    assert (raised.value.max_bytes, raised.value.codec) == (1_000_000, mark.decode())
    assert len(ingested(Compression(max_bytes=2_000_000), data, marked(mark)).value) in (1_200_000, 2_000_000)


def test_a_window_that_takes_more_memory_than_a_value_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(DecompressionLimitError):
        ingested(Compression(max_bytes=1000), stream.compress(b"a" * 500) + stream.flush(), marked(b"zstd"))


ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
GZIP = gzip.compress(TEXT, mtime=0)


@pytest.mark.parametrize(
    ("mark", "data", "problem"),
    [
        (b"zstd", ZSTD[:-1], "can't be read"),
        (b"zstd", ZSTD[:-3] + bytes([ZSTD[-3] ^ 1]) + ZSTD[-2:], "checksum"),
        (b"zstd", ZSTD + b"x", "unused data"),
        (b"zstd", ZSTD + ZSTD, "unused data"),
        (b"zstd", zstd_without_size(TEXT)[:-1], "cut"),
        (b"zstd", zstd_without_size(TEXT) + b"x", "behind it"),
        (b"zstd", b"", "can't be read"),
        (b"zstd", GZIP, "can't be read"),
        (b"zstd:9", ZSTD, r"dictionary 9, known are \[7, 8\]"),
        (b"gzip", GZIP[:-1], "cut"),
        (b"gzip", GZIP[:-5] + bytes([GZIP[-5] ^ 1]) + GZIP[-4:], "incorrect data check"),
        (b"gzip", GZIP + b"x", "can't be read|cut"),
        (b"gzip", GZIP + b"\x00" * 20, "can't be read"),
        (b"gzip", gzip.compress(b"", mtime=0) * 65, "64 members"),
        (b"gzip", b"", "cut"),
        (b"gzip", zlib.compress(TEXT), "can't be read"),
        (b"gzip:7", GZIP, "names a dictionary"),
        (b"lz4", ZSTD, "only gzip and zstd are known"),
        (b"zstd:", ZSTD, "only gzip and zstd are known"),
        (b"\xff" * 10_000, ZSTD, "only gzip and zstd are known"),
    ],
)
def test_what_can_not_be_read_is_refused_with_the_reason(mark: bytes, data: bytes, problem: str) -> None:
    reader = Compression(dictionaries=DICTIONARIES)
    with pytest.raises(CompressedValueError, match=problem) as raised:
        ingested(reader, data, marked(mark))
    assert not isinstance(raised.value, DecompressionLimitError)
    assert len(str(raised.value)) < 400


@given(st.sampled_from([(b"zstd", ZSTD), (b"gzip", GZIP)]), st.data())
def test_one_changed_byte_is_refused_or_changes_nothing(frame: tuple[bytes, bytes], data: st.DataObject) -> None:
    mark, whole = frame
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    with suppress(CompressedValueError):
        assert ingested(Compression(), bytes(changed), marked(mark)).value == TEXT  # as gzip's time and system


def test_a_value_of_null_and_a_header_of_null_stay_as_they_are() -> None:
    assert ingested(Compression(), None, marked(b"zstd")).value is None
    plain = ingested(Compression(), TEXT, marked(None))
    assert (plain.value, list(plain.headers)) == (TEXT, marked(None))


def test_what_is_compressed_already_or_too_large_to_be_read_back_is_left_alone() -> None:
    assert emitted(Compression(), TEXT, marked(b"gzip")).value == TEXT
    assert emitted(Compression(max_bytes=len(TEXT) - 1), TEXT).value == TEXT


def test_the_content_type_says_what_is_compressed() -> None:
    some = Compression(when=ContentTypes("application/json", "text/*"))
    for content_type, chosen in [
        (b"application/json", True),
        (b"Application/JSON; charset=utf-8", True),
        (b"text/csv", True),
        (b"application/json-seq", False),
        (b"image/png", False),
        (None, False),
    ]:
        sent = emitted(some, TEXT, [("content-type", content_type)])
        assert (sent.value != TEXT) is chosen, content_type
    assert emitted(some, TEXT).value == TEXT
    assert emitted(Compression(when=ContentTypes("text/*", otherwise=True)), TEXT).value != TEXT
    assert emitted(Compression(when=ContentTypes(otherwise=False)), TEXT, [("content-type", b"a/b")]).value == TEXT
    with pytest.raises(ValueError, match="kind/type"):
        ContentTypes("json")


def columns(records: Sequence[tuple[bytes | None, list[tuple[str, bytes | None]]]]) -> RecordColumns:
    values = pa.array([value for value, _ in records], pa.binary())
    headers = pa.array([Headers(pairs).to_bytes() for _, pairs in records], pa.binary())
    times = pa.array(range(len(records)), pa.int64())
    topics = pa.array(["t"] * len(records)).cast(ORIGIN.field("topic").type)
    origin = pa.record_batch([topics], names=["topic"])
    return RecordColumns.adopt(pa.array([b"k"] * len(records), pa.binary()), values, times, headers, origin)


def rows(records: RecordColumns) -> list[tuple[bytes | None, list[tuple[str, bytes | None]]]]:
    return [
        (value, [tuple(header) for header in Headers.from_bytes(headers)])
        for value, headers in zip(records.value.to_pylist(), records.headers.to_pylist(), strict=True)
    ]


VALUES = st.sampled_from([None, b"", TEXT, NOISE, SAMPLES[3], b"short"]) | st.binary(max_size=200)
SOME_HEADERS = st.sampled_from([[], HEADERS, marked(None), marked(b"gzip")])


@given(st.lists(st.tuples(VALUES, SOME_HEADERS), max_size=8), st.sampled_from([None, 7]))
def test_columns_are_changed_as_records_are(records: list, dictionary: int | None) -> None:
    compression = Compression(dictionaries=DICTIONARIES, dictionary=dictionary, min_bytes=8)
    one_by_one = [emitted(compression, value, headers) for value, headers in records]
    expected = [(record.value, [tuple(header) for header in record.headers]) for record in one_by_one]
    sent = compression.on_emit_columns(columns(records))
    assert rows(sent) == expected
    unread = marked(b"gzip")  # nothing is compressed there
    assert all(rows(sent)[row] == records[row] for row, (_, headers) in enumerate(records) if headers == unread)
    readable = [record for record in rows(sent) if record[1] != unread]
    back = rows(compression.on_ingest_columns(columns(readable)))
    again = [ingested(compression, value, headers) for value, headers in readable]
    assert back == [(record.value, [tuple(header) for header in record.headers]) for record in again]
    assert [value for value, _ in back] == [value for value, headers in records if headers != unread]


def test_columns_of_which_none_is_compressed_are_handed_on_as_they_are() -> None:
    records = columns([(NOISE, HEADERS), (None, [])])
    assert Compression().on_emit_columns(records) is records
    assert Compression().on_ingest_columns(records) is records
    with pytest.raises(CompressedValueError):
        Compression().on_ingest_columns(columns([(TEXT, []), (NOISE, marked(b"zstd"))]))


def test_small_values_that_stand_for_a_lot_together_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = columns([(TEXT, [])] * 4)
    compressed = Compression().on_emit_columns(sent)
    monkeypatch.setattr("statestore.middleware.size.compression.PART_BYTES", 3 * len(TEXT))
    assert Compression().on_ingest_columns(compressed) is None
    assert rows(Compression().on_ingest_columns(compressed.slice(0, 2))) == [(TEXT, [])] * 2


def test_it_travels_and_shows_no_dictionary() -> None:
    compression = Compression(dictionaries=DICTIONARIES, dictionary=7, when=ContentTypes("text/*", otherwise=True))
    emitted(compression, TEXT)
    again = pickle.loads(pickle.dumps(compression))
    assert emitted(again, TEXT) == emitted(compression, TEXT)
    assert repr(again) == "Compression('zstd:7', level=3)"


def test_the_same_value_is_compressed_to_the_same_bytes() -> None:
    for codec in ("zstd", "gzip"):
        assert emitted(Compression(codec), TEXT) == emitted(Compression(codec), TEXT)


def test_chains_of_several_threads_do_not_meet() -> None:
    values = [RNG.bytes(200) * 500 for _ in range(4)]

    def comes_back(value: bytes) -> bool:
        own = Compression()
        sent = (emitted(own, value) for _ in range(20))
        return all(ingested(own, one.value, one.headers).value == value for one in sent)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(comes_back, values * 5))


def test_it_is_made_of_a_configuration(tmp_path) -> None:
    for number, content in DICTIONARIES.items():
        (tmp_path / f"d{number}").write_bytes(content)
    config = {
        "bootstrap.servers": "elsewhere",
        "statestore.compression.level": "5",
        "statestore.compression.dictionaries": f"7:{tmp_path}/d7, 8:{tmp_path}/d8",
        "statestore.compression.dictionary": "8",
        "statestore.compression.content.types": "text/*",
    }
    made = Compression.from_config(config)
    assert repr(made) == "Compression('zstd:8', level=5)"
    assert emitted(made, TEXT).value == TEXT
    assert emitted(made, TEXT, [("content-type", b"text/plain")]).value != TEXT
    assert repr(Compression.from_config({})) == "Compression('zstd', level=3)"
    for wrong in (
        {"statestore.compression.codec": "lz4"},
        {"statestore.compression.level": "high"},
        {"statestore.compression.dictionaries": "orders"},
        {"statestore.compression.dictionaries": "7:/no/such/file"},
    ):
        with pytest.raises(ConfigException, match=r"statestore\.compression"):
            Compression.from_config(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"codec": "lz4"},
        {"level": 23},
        {"codec": "gzip", "level": 0},
        {"max_bytes": 0},
        {"min_bytes": 10, "max_bytes": 9},
        {"dictionary": 7},
        {"dictionaries": {0: DICTIONARIES[7]}},
        {"dictionaries": {7: b"tiny"}},
        {"codec": "gzip", "dictionaries": DICTIONARIES, "dictionary": 7},
    ],
)
def test_arguments_that_can_not_be_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"must|is to be"):
        Compression(**wrong)


def test_too_few_samples_make_no_dictionary() -> None:
    with pytest.raises(ValueError, match="take more of them"):
        train_dictionary([b"a"])


def test_without_the_library_gzip_works_and_zstd_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    level = 11  # of which nothing is cached
    with pytest.raises(ExtraMissingError, match=r"statestore\[compression\]"):
        Compression(level=level).init(None)
    with pytest.raises(CompressedValueError, match=r"statestore\[compression\]"):
        ingested(Compression(max_bytes=99 << 20), ZSTD, marked(b"zstd"))
    sent = emitted(Compression("gzip"), TEXT)
    assert ingested(Compression("gzip"), sent.value, list(sent.headers)).value == TEXT


def test_compression_after_encryption_is_refused() -> None:
    class Encryption(Interceptor):
        kind = "encryption"

    with pytest.raises(ChainOrderError, match="compress before you encrypt"):
        Chain([Encryption(), Compression()])
    Chain([Compression(), Encryption()])
