"""What all joins share: joined records and their headers, and how waiting values are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from statestore.dsl.header_policy import HeaderPolicy
from statestore.format.serde import Serde, as_read
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_HEADERS
from statestore.processor.record import Record

Joiner: TypeAlias = "Callable[..., Any]"
"""A function of the left and the right value, in streams after the key; a missing value is None."""


class JoinedHeaders:
    """Makes one list of the headers of both sides, in KIP-1271's encoding; None is a missing side.

    `latest` takes those of the record that came last, `first` those of the one that was there; an unmatched record
    keeps its own. All other policies take the left side first, whichever came first.
    """

    def __init__(self, policy: HeaderPolicy, context: ProcessorContext) -> None:
        self._policy = policy
        self._context = context

    def of(self, left: bytes | None, right: bytes | None, *, left_came_last: bool) -> bytes:
        """Return the headers of both; those that exceed the bounds are dropped and counted."""
        policy = self._policy
        if policy.keeps_none:
            return b""
        if policy.is_of_one_record:
            wanted, other = (left, right) if left_came_last is not policy.keeps_first else (right, left)
            merged, dropped = policy.merge(None, (other if wanted is None else wanted) or b"")
        elif policy.is_function or (left and right):
            merged, dropped = policy.merge(left or b"", right or b"")
        else:
            merged, dropped = policy.merge(None, left or right or b"")
        if dropped:
            self._context.count(DROPPED_HEADERS, dropped)
        return merged


class JoinedRecords:
    """Makes joined records, and sends them on; with a serde for their values, as it reads what it writes of them."""

    def __init__(
        self, joiner: Joiner, policy: HeaderPolicy, context: ProcessorContext, values: Serde[Any] | None = None
    ) -> None:
        self._joiner, self._values = joiner, values
        self._headers = JoinedHeaders(policy, context)
        self._forward = context.forward

    def joined(
        self, key: Any, left: tuple[Any, bytes] | None, right: tuple[Any, bytes] | None, *, left_came_last: bool
    ) -> tuple[Any, bytes]:
        """Return what the joiner makes of a left and a right value, and the headers of both; None is a missing side."""
        left_value, left_headers = (None, None) if left is None else left
        right_value, right_headers = (None, None) if right is None else right
        headers = self._headers.of(left_headers, right_headers, left_came_last=left_came_last)
        return self._joiner(key, left_value, right_value), headers

    def send(
        self,
        key: Any,
        left: tuple[Any, bytes] | None,
        right: tuple[Any, bytes] | None,
        timestamp_ms: int,
        *,
        left_came_last: bool,
    ) -> None:
        """Join a left and a right value with their headers, and send the result on; None is a missing side."""
        value, headers = self.joined(key, left, right, left_came_last=left_came_last)
        value = value if self._values is None else as_read(self._values, value)
        self._forward(Record.adopt(key, value, timestamp_ms, Headers.from_bytes(headers)))


class ValueBytes:
    """Writes and reads the values of waiting records, and their headers; a serde may add headers."""

    def __init__(self, serde: Serde[Any], *, keeps_headers: bool = True) -> None:
        """Write no headers unless `keeps_headers`, or the serde takes them."""
        self._takes_headers = serde.with_headers is not None
        self._keeps_headers = keeps_headers or self._takes_headers
        self._serde = serde.on_topic(None)

    def write(self, record: Record[Any, Any]) -> tuple[bytes, bytes]:
        """Return the bytes of a record's value and of its headers, including those that the serde adds."""
        headers = record.headers.copy() if self._takes_headers else record.headers
        value = self._serde.serialize(record.value, headers)
        return value, headers.to_bytes() if self._keeps_headers else b""

    def read(self, value: bytes, header_bytes: bytes) -> Any:
        """Return the value of these bytes."""
        return self._serde.deserialize(value, Headers.from_bytes(header_bytes) if self._takes_headers else None)
