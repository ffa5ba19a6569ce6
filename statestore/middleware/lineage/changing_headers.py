"""Headers that change on the way of a record that is the same to who wrote it and to who reads it.

Traces go on with each hop, and a routing trail gets longer, also by mirrors and agents that have no keys. So these are
what a signature leaves out unless it is told otherwise; nothing may be decided by them.
"""

from __future__ import annotations

from typing import Final

TRACEPARENT: Final = "traceparent"
"""The trace that a record belongs to, and the span that it comes from. Source: W3C Trace Context."""
TRACESTATE: Final = "tracestate"
"""What tracing systems add to that."""
BAGGAGE: Final = "baggage"
"""Names and values that travel with a trace. Source: W3C Baggage."""
TRACE_LINKS: Final = "trace-links"
"""Other traces that a record comes from. Leaves with the span that is made when the record is emitted."""
TRAIL_HEADER: Final = "paper-trail"
"""The header that the routing trail is in."""

CHANGING_HEADERS: Final = (TRACEPARENT, TRACESTATE, BAGGAGE, TRACE_LINKS, TRAIL_HEADER)
"""The headers that change on a record's way: those of its trace, and its routing trail."""
