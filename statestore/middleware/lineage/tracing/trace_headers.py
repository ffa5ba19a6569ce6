"""Trace headers: W3C's, read without OpenTelemetry; links to other traces; and contexts by a propagator.

    traceparent := version "-" trace_id:32 hex "-" span_id:16 hex "-" flags:2 hex
    trace-links := traceparent ("," traceparent)*          at most MAX_LINKS, the latest last

If a header is there twice, the last counts, as in Kafka. Source: W3C Trace Context, level 2; W3C Baggage.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from statestore.format.binary_columns import Flags
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.middleware.application import BAGGAGE, TRACE_LINKS, TRACEPARENT, TRACESTATE, extra, value_of

with extra("tracing"):
    from opentelemetry.context import Context
    from opentelemetry.propagate import get_global_textmap
    from opentelemetry.propagators.textmap import Getter, TextMapPropagator
    from opentelemetry.trace import get_current_span

MAX_LINKS: Final = 32
"""How many links a record may have: with one more, the oldest goes."""
MAX_VALUE_BYTES: Final = 8192
"""How long a header is that is read. W3C's bound for baggage, and OpenTelemetry's for tracestate."""

_TRACEPARENT_BYTES: Final = 55
_W3C: Final = frozenset((TRACEPARENT, TRACESTATE, BAGGAGE))
_FORM: Final = "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]"
_NOBODY: Final = "ff-.*|.{3}0{32}-.*|.{36}0{16}-.*"
"""Of the right form, but with an invalid version, trace id or span id."""
_UNSAMPLED_FLAG: Final = "[02468ace]"
_IS_TRACEPARENT: Final = re.compile(f"(?!{_NOBODY}){_FORM}[0-9a-f]".encode()).fullmatch
_IS_UNSAMPLED: Final = re.compile(f"(?!{_NOBODY}){_FORM}{_UNSAMPLED_FLAG}".encode()).fullmatch


class SeenTrace(NamedTuple):
    """What one look at a record's headers tells."""

    traceparent: bytes | None
    """The last one, well-formed or not; None if there is none."""
    has_links: bool
    longest_bytes: int
    """The size of the longest of tracestate and baggage; 0 if there is none."""


def seen_trace(headers: Headers) -> SeenTrace:
    """Look at the headers once. Raises FormatError for headers that can't be read."""
    traceparent, has_links, longest_bytes = None, False, 0
    for key, value in headers:
        if key == TRACEPARENT:
            traceparent = value
        elif key == TRACE_LINKS:
            has_links = True
        elif key in (BAGGAGE, TRACESTATE) and value is not None and len(value) > longest_bytes:
            longest_bytes = len(value)
    return SeenTrace(traceparent, has_links, longest_bytes)


def is_traceparent(value: bytes | None) -> bool:
    """Return whether bytes name a trace and a span in the form that is written today."""
    return value is not None and _IS_TRACEPARENT(value) is not None


def is_unsampled(value: bytes | None) -> bool:
    """Return whether bytes name a trace that nobody records."""
    return value is not None and _IS_UNSAMPLED(value) is not None


def is_same_trace(headers: Headers, others: Headers) -> bool:
    """Return whether both name the same trace, or one of them none."""
    found = (value_of(headers, TRACEPARENT), value_of(others, TRACEPARENT))
    traces = {value[3:35] for value in found if value is not None and is_traceparent(value)}
    return len(traces) < 2


def drop_oversize(headers: Headers) -> None:
    """Remove those of W3C's headers that are too long to be read."""
    for key in (TRACESTATE, BAGGAGE):
        if any(header.value is not None and len(header.value) > MAX_VALUE_BYTES for header in headers.headers(key)):
            headers.remove(key)


def unsampled_rows(records: RecordColumns) -> Flags:
    """Return for each record whether it belongs to a trace that nobody records, and has no long headers."""
    traceparent = records.header(TRACEPARENT)
    named = pc.match_substring_regex(traceparent, f"^{_FORM}{_UNSAMPLED_FLAG}$")
    nobody = pc.match_substring_regex(traceparent, f"^({_NOBODY})$")
    # All headers together, as that is one look. Records with more are checked one by one.
    is_short = pc.less_equal(pc.binary_length(records.headers), MAX_VALUE_BYTES)
    return np.asarray(pc.fill_null(pc.and_(pc.and_(named, pc.invert(nobody)), is_short), False))


def may_have_links(records: RecordColumns) -> bool:
    """Return whether the bytes of any of the records' headers hold the name of the header with links."""
    return bool(pc.any(pc.match_substring(records.headers, TRACE_LINKS)).as_py())


def link_traces(headers: Headers, *others: Headers) -> Headers:
    """Note the traces of `others`, and those that they note, in `headers`; return these.

    For what comes from several records: the result of an aggregate or a join continues the trace in its headers, and
    the span of its emission links to the others. The last MAX_LINKS are kept. What is not a trace is left out. Raises
    HeadersFrozenError for headers that are read-only, and FormatError for those that can't be read.
    """
    found = read_links(headers)
    for other in others:
        found += read_links(other)
        traceparent = value_of(other, TRACEPARENT)
        if traceparent is not None and is_traceparent(traceparent):
            found.append(traceparent)
    by_span = {traceparent[3:52]: traceparent for traceparent in reversed(found)}
    by_span.pop((value_of(headers, TRACEPARENT) or b"")[3:52], None)
    value = b",".join([*by_span.values()][:MAX_LINKS][::-1])
    noted = headers.last_header(TRACE_LINKS)
    if value != (b"" if noted is None else noted.value):
        headers.remove(TRACE_LINKS)
        if value:
            headers.add(TRACE_LINKS, value)
    return headers


def read_links(headers: Headers) -> list[bytes]:
    """Return the traces that the headers note, the latest last; none of a value that is too long for MAX_LINKS."""
    value = value_of(headers, TRACE_LINKS) or b""
    is_short = len(value) <= MAX_LINKS * (_TRACEPARENT_BYTES + 1)
    return [found for found in value.split(b",") if is_traceparent(found)] if is_short else []


class _LastHeaders(Getter[Headers]):
    """Reads the last header of each key; what is too long or has no value is not there."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        value = value_of(carrier, key)
        return None if value is None or len(value) > MAX_VALUE_BYTES else [value.decode("utf-8", "replace")]

    def keys(self, carrier: Headers) -> list[str]:
        return [header.key for header in carrier]


_LAST_HEADERS: Final = _LastHeaders()


class Propagation:
    """Reads contexts from headers and writes them there; None is the propagator that is configured for the process."""

    def __init__(self, propagator: TextMapPropagator | None) -> None:
        self._propagator = get_global_textmap() if propagator is None else propagator
        self.fields: Final = frozenset(self._propagator.fields)
        """The headers that it writes."""
        self.is_w3c: Final = TRACEPARENT in self.fields and self.fields <= _W3C
        """Whether traceparent alone says if a trace is sampled."""

    def extract(self, headers: Headers) -> Context:
        """Return the context of the headers, empty where they are missing, malformed or too long."""
        return self._propagator.extract(headers, Context(), _LAST_HEADERS)

    def names_trace(self, headers: Headers) -> bool:
        """Return whether the headers name a trace."""
        if self.is_w3c:
            return is_traceparent(value_of(headers, TRACEPARENT))
        return get_current_span(self.extract(headers)).get_span_context().is_valid

    def inject(self, headers: Headers, context: Context) -> None:
        """Write the context into the headers; those of the propagator that the context does not have are removed."""
        written: dict[str, str] = {}
        self._propagator.inject(written, context)
        values: dict[str, str | None] = dict.fromkeys(sorted(self.fields - written.keys()))
        for key, value in (values | written).items():
            found = [header.value for header in headers.headers(key)]
            wanted = [] if value is None else [value.encode()]
            if found != wanted:
                headers.remove(key)
                for encoded in wanted:
                    headers.add(key, encoded)
