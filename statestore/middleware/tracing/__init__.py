"""Tracing by OpenTelemetry, in W3C's headers: a trace that enters state continues when it leaves it.

interceptor    Tracing: the spans of a record on its way through a query
w3c            the headers' names and bounds, what of them is read without OpenTelemetry, and links to other traces
propagation    between headers and OpenTelemetry's contexts
spans          what spans are called and say, by OpenTelemetry's messaging conventions
providers      the tracer provider of a process
record_ids     span ids that a retried batch gives again

Needs the extra `tracing`; users import from here, `RecordIds` too. Start at `interceptor`.
"""

from statestore.middleware.tracing.interceptor import Tracing
from statestore.middleware.tracing.w3c import BAGGAGE, MAX_LINKS, TRACE_LINKS, TRACEPARENT, TRACESTATE, link_traces

__all__ = ["BAGGAGE", "MAX_LINKS", "TRACEPARENT", "TRACESTATE", "TRACE_LINKS", "Tracing", "link_traces"]
