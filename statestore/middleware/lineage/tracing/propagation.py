"""Between a record's headers and OpenTelemetry's contexts, by a propagator of OpenTelemetry's."""

from __future__ import annotations

from typing import Final

from statestore.headers.record_headers import Headers
from statestore.middleware.extras import extra
from statestore.middleware.lineage.changing_headers import BAGGAGE, TRACEPARENT, TRACESTATE
from statestore.middleware.lineage.tracing.w3c import MAX_VALUE_BYTES, is_traceparent
from statestore.middleware.marks import value_of

with extra("tracing"):
    from opentelemetry.context import Context
    from opentelemetry.propagate import get_global_textmap
    from opentelemetry.propagators.textmap import Getter, TextMapPropagator
    from opentelemetry.trace import get_current_span

_W3C: Final = frozenset((TRACEPARENT, TRACESTATE, BAGGAGE))


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
        """Return the context of the headers: an empty one of what is missing, malformed or too long."""
        return self._propagator.extract(headers, Context(), _LAST_HEADERS)

    def names_trace(self, headers: Headers) -> bool:
        """Return whether the headers name a trace."""
        if self.is_w3c:
            return is_traceparent(value_of(headers, TRACEPARENT))
        return get_current_span(self.extract(headers)).get_span_context().is_valid

    def inject(self, headers: Headers, context: Context) -> None:
        """Have the headers say what the context says, and no more: what of theirs was not understood goes."""
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
