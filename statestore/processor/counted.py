"""What ready-made operators count with `ProcessorContext.count`: names that figures and metrics share."""

from __future__ import annotations

from typing import Final

DROPPED_RECORDS: Final = "dropped_records"
"""Records that were left out: without a key, or a value where one is needed, and late ones, once a window."""
DROPPED_HEADERS: Final = "dropped_headers"
"""Headers that a policy had no room for."""
LATE_RECORDS: Final = "late_records"
"""Records that came too late for at least one of their windows."""
DUPLICATE_RECORDS: Final = "duplicate_records"
"""Records that were left out because the same record came before."""
