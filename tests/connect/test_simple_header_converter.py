"""The default header converter, beyond what the vectors have."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.connect import Schema, SchemaAndValue, SimpleHeaderConverter
from statestore.errors import DataException


@given(st.binary(max_size=20) | st.text().map(str.encode) | st.text('[]{},:0129.-+eE"\\ nulT').map(str.encode))
def test_strict_what_is_read_is_written_as_it_was(content: bytes) -> None:
    converter = SimpleHeaderConverter()
    found = converter.to_connect_header("t", "h", content)
    assert found is not None
    if found.schema == Schema.BYTES_SCHEMA:
        assert found.value == content
    else:
        assert converter.from_connect_header("t", "h", found.schema, found.value) == content


def test_strict_bytes_that_are_no_text_stay_bytes_and_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert SimpleHeaderConverter().to_connect_header("orders", "trace", b"\xff5") == SchemaAndValue(
            Schema.BYTES_SCHEMA, b"\xff5"
        )
    (record,) = caplog.records
    assert "'trace'" in record.getMessage()
    assert "'orders'" in record.getMessage()


def test_compat_text_that_nests_too_deeply_stays_bytes_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    converter = SimpleHeaderConverter()
    converter.configure({"mode": "compat"})
    content = b"[" * 600 + b"]" * 600
    with caplog.at_level(logging.WARNING):
        assert converter.to_connect_header("t", "h", content) == SchemaAndValue(Schema.BYTES_SCHEMA, content)
    assert "deeper than 500" in caplog.text


@pytest.mark.parametrize("value", [object(), "\ud800", [object()]])
def test_what_has_no_text_names_its_header(value: object) -> None:
    with pytest.raises(DataException) as raised:
        SimpleHeaderConverter().from_connect_header("t", "trace", None, value)
    assert raised.value.header == "trace"
    assert str(raised.value).startswith("header 'trace': ")
