"""The text files of offsets that Kafka Streams before 4.3 wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.offset_checkpoint import TopicPartition, decode_offset_checkpoint, encode_offset_checkpoint
from tests.support.golden.kafka_streams import FIXTURES, load_fixture

OLD = [name for name in FIXTURES if name.startswith("old-")]
TOPICS = st.text("abc.-_é", min_size=1, max_size=4)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(-(2**31), 2**31 - 1)), st.integers(-(2**63), 2**63 - 1), max_size=3
)


@pytest.mark.parametrize("name", OLD)
def test_files_of_kafka_streams_are_read_and_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    task = load_fixture(name).unpack(tmp_path)
    files = {path.name: path.read_bytes() for path in task.iterdir() if path.is_file()}
    assert {file: decode_offset_checkpoint(content) for file, content in files.items()} == {
        ".checkpoint": {TopicPartition("golden-store-changelog", 0): 11},
        "store.position": {TopicPartition("in", 0): 11},
    }
    for content in files.values():
        assert encode_offset_checkpoint(decode_offset_checkpoint(content)) == content


@given(OFFSETS)
def test_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offset_checkpoint(encode_offset_checkpoint(offsets)) == offsets


@given(
    st.binary(max_size=60)
    | st.text("0123 -ab\n\r\t\x85\u2028\u0663", max_size=30).map(lambda text: f"0\n1\n{text}".encode())
)
@example(b"0\n1\na 0 " + b"9" * 5000)
@example("0\n1\na 0 \u0663".encode())
def test_any_bytes_are_offsets_or_a_format_error(data: bytes) -> None:
    try:
        offsets = decode_offset_checkpoint(data)
    except FormatError:
        return
    assert all(type(number) is int for key, offset in offsets.items() for number in (key.partition, offset))


def test_lines_end_and_words_are_apart_as_in_java() -> None:
    read = decode_offset_checkpoint(b"0\r\n2\ra  1\t-4 \nb 0 7")
    assert read == {TopicPartition("a", 1): -4, TopicPartition("b", 0): 7}


def test_bytes_that_are_not_text_are_damage() -> None:
    with pytest.raises(FormatError, match="is not UTF-8"):
        decode_offset_checkpoint(b"0\n1\n\xff 0 1\n")


@pytest.mark.parametrize("topic", ["", "a b", "a\n"])
def test_what_is_no_topic_is_not_written(topic: str) -> None:
    with pytest.raises(ValueError, match="not the name of a topic"):
        encode_offset_checkpoint({TopicPartition(topic, 0): 1})
