"""Takes headers out of values that an organisation wrapped in its own way, and makes record headers of them.

Your function knows the wrapper. A null value is a delete, and stays one. Source: KIP-82, "Status Quo - Keep Custom
Value Message Wrapper - Message<H, P>".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from statestore.errors import DeserializationError
from statestore.errors.readable import record_place, shape_of
from statestore.headers.record_headers import Headers
from statestore.headers.records import ConsumerRecord

__all__ = ["WrappedValueImporter"]

_K = TypeVar("_K")

Split: TypeAlias = "Callable[[bytes], tuple[Iterable[tuple[str, bytes | None]], bytes | None]]"
"""Returns the headers in a wrapped value, and the payload; a payload of None makes the record a delete."""


@dataclass(frozen=True)
class WrappedValueImporter:
    """Splits values with one function; picklable if it is."""

    split: Split

    def import_value(self, value: bytes | None, headers: Headers) -> bytes | None:
        """Return the payload, and add its headers behind those that the record has; None stays None.

        Raises DeserializationError, with what `split` raised as the cause, and adds no header then.
        """
        if value is None:
            return None
        try:
            pairs, payload = self.split(value)
            found = Headers(pairs)
        except Exception as cause:
            raise DeserializationError(f"wrapped value {shape_of(value)}: {cause or type(cause).__name__}") from cause
        if payload is not None and not isinstance(payload, bytes):
            raise DeserializationError(f"the payload of a wrapped value must be bytes, got {shape_of(payload)}")
        for header in found:
            headers.add(header)
        return payload

    def import_record(self, record: ConsumerRecord[_K, bytes | None]) -> ConsumerRecord[_K, bytes | None]:
        """Return a record with the payload as its value, and the headers that were in it; `record` stays as it is.

        Raises DeserializationError naming the record.
        """
        headers = record.headers.copy()
        try:
            payload = self.import_value(record.value, headers)
        except DeserializationError as cause:
            where = record_place(record.topic, record.partition, record.offset)
            raise DeserializationError(f"{where}: {cause}") from cause.__cause__
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            key=record.key,
            value=payload,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=record.timestamp_type,
            headers=headers,
        )
