"""Arrow files that inflate: what a message would take is known before it is taken, and what is written can be read."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from statestore.errors import FormatError
from statestore.format import arrow_file
from statestore.format.arrow_file import MAX_INFLATED_BYTES, MAX_INFLATION, ArrowFile, ballast
from tests.support.arrow_memory import counted_memory

SCHEMA = pa.schema(
    [pa.field("store", pa.dictionary(pa.int32(), pa.string())), pa.field("value", pa.binary()), ("time", pa.int64())]
)


def batch_of(values: list[bytes | None], store: str = "totals") -> pa.RecordBatch:
    names = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(values)), pa.array([store]))
    return pa.record_batch(
        [names, pa.array(values, pa.binary()), pa.array(range(len(values)), pa.int64())], schema=SCHEMA
    )


def file_of(
    *batches: pa.RecordBatch, compression: str | None = "zstd", ballasted: bool = False, **options: Any
) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, SCHEMA, options=ipc.IpcWriteOptions(compression=compression, **options)) as writer:
        for batch in batches:
            writer.write_batch(batch, custom_metadata=ballast(batch) if ballasted else None)
    return sink.getvalue()


ZEROS = bytes(128 << 20)


def test_some_kb_that_inflate_to_128_mb_are_refused_before_they_do() -> None:
    content = file_of(batch_of([ZEROS]))
    assert content.size < 20_000
    with counted_memory() as peak:
        with pytest.raises(FormatError, match=r"inflates to 13421\d{4}, and no more than 67108864 are taken"):
            list(ArrowFile(content).batches())
        assert peak() < 100_000
    with counted_memory() as peak:
        assert ipc.open_file(content).get_batch(0).num_rows == 1
        assert peak() > len(ZEROS), "or nothing is counted here"


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_a_huge_value_that_was_written_with_its_ballast_is_read(compression: str | None) -> None:
    batch = batch_of([bytes(MAX_INFLATED_BYTES)])
    content = file_of(batch, compression=compression, ballasted=True)
    assert content.size <= MAX_INFLATED_BYTES + MAX_INFLATED_BYTES // MAX_INFLATION + 10_000
    (found,) = ArrowFile(content).batches()
    assert found == batch
    assert ipc.open_file(content).get_batch(0) == batch, "any reader of Arrow files reads it"


@given(
    values=st.lists(st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 3_000).map(bytes)), max_size=30),
    compression=st.sampled_from(["zstd", "lz4", None]),
    most_bytes=st.integers(0, 4_000),
    most_inflation=st.integers(1, 40),
)
def test_what_is_written_can_be_read_however_it_compresses(
    values: list[bytes | None], compression: str | None, most_bytes: int, most_inflation: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_file, "MAX_INFLATED_BYTES", max(most_bytes, 200))  # the dictionary has no ballast
        patch.setattr(arrow_file, "MAX_INFLATION", most_inflation)
        batches = [batch_of(values), batch_of(values[::2])]
        content = file_of(*batches, compression=compression, ballasted=True)
        assert list(ArrowFile(content).batches()) == batches


@given(
    values=st.lists(st.binary(max_size=2_000), min_size=1, max_size=20), compression=st.sampled_from(["zstd", "lz4"])
)
def test_what_a_batch_inflates_to_is_what_arrow_allocates(values: list[bytes], compression: str) -> None:
    content = file_of(batch_of(values), compression=compression)
    (message,) = (m for m in ipc.MessageReader.open_stream(content.slice(8)) if m.type == "record batch")
    declared_bytes = arrow_file._inflated_bytes(message)
    reader = ipc.open_stream(content.slice(8))
    with counted_memory() as peak:
        reader = ipc.open_stream(content.slice(8))
        reader.read_next_batch()
        # Arrow rounds each of a few buffers up to 64 bytes, and reads the dictionary too.
        assert declared_bytes <= peak() <= declared_bytes + 1_000


def test_dictionaries_count_together() -> None:
    """Each delta of a dictionary is kept until the end, however many there are."""
    names = pa.array([f"{number}{' ' * (5 << 20)}" for number in range(15)])
    batches = []
    for number in range(1, 16):
        store = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), names.slice(0, number))
        columns = [store, pa.array([b""], pa.binary()), pa.array([0], pa.int64())]
        batches.append(pa.record_batch(columns, schema=SCHEMA))
    content = file_of(*batches, emit_dictionary_deltas=True)
    assert content.size < 200_000
    with counted_memory() as peak, pytest.raises(FormatError, match=r"a dictionary of .* inflates to"):
        for _ in ArrowFile(content).batches():
            pass
    assert peak() < 4 * MAX_INFLATED_BYTES


def test_a_compression_that_is_said_elsewhere_is_refused() -> None:
    """Arrow 0.17 said it in metadata beside the batch, and pyarrow still looks there."""
    batch = batch_of([bytes(1_000)])
    content = file_of(batch, compression=None, metadata_version=ipc.MetadataVersion.V4)
    with pytest.raises(FormatError, match=r"before Arrow 1\.0"):
        list(ArrowFile(content).batches())


def footer_of(content: bytes) -> int:
    (size_bytes,) = struct.unpack_from("<i", content, len(content) - 10)
    return len(content) - 10 - size_bytes


def test_a_footer_can_lead_nowhere_else() -> None:
    """It says where batches are: a hostile one could say of one small batch that it is there a thousand times."""
    once, twice = (file_of(*[batch_of([b"x"])] * times).to_pybytes() for times in (1, 2))
    short, long = once[: footer_of(once)], twice[: footer_of(twice)]
    for content, said in ((short + twice[len(long) :], "ends before"), (long + once[len(short) :], "more than the 1")):
        with pytest.raises(FormatError, match=said):
            list(ArrowFile(pa.py_buffer(content)).batches())


def test_no_bit_that_flips_and_no_size_that_is_made_up_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of a file with all kinds of buffers flipped, each of its places for a size set to a hostile one."""
    most_bytes = 4_000
    monkeypatch.setattr(arrow_file, "MAX_INFLATED_BYTES", most_bytes)
    monkeypatch.setattr(arrow_file, "MAX_INFLATION", 1)
    whole = file_of(batch_of([b"a" * 300, None, b"b"])).to_pybytes()
    draw = random.Random(7)
    damaged = []
    for place in range(0, len(whole) - 8, 8):
        for size in (-1, -2, -(2**63), 2**63 - 1, 2**40, most_bytes + 1, most_bytes // 2):
            damaged.append(whole[:place] + struct.pack("<q", size) + whole[place + 8 :])
    for place in range(len(whole)):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
        start, end = sorted(draw.sample(range(len(whole)), 2))
        damaged.append(whole[:place] + whole[start:end] + whole[place:])
    refused = 0
    with counted_memory() as peak:
        for content in damaged:
            try:
                for batch in ArrowFile(pa.py_buffer(content)).batches():
                    batch.validate(full=True)
            except (FormatError, pa.ArrowException, OSError, ValueError):
                refused += 1
    assert peak() <= most_bytes + 1_000
    assert refused > len(damaged) // 2
