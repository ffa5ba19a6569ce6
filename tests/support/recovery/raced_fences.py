"""A location where somebody else comes in just before a fence is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.recovery.location.shard_files import parse_fence_name


class RacedFences:
    """To go before the location's own class among the bases of one."""

    before_fence: Callable[[], object] | None = None
    """Called once, before the next fence is written."""

    def write(self, name: str, data: Any) -> None:
        """Write a file; let the others go first if it is a fence."""
        if parse_fence_name(name) is not None and self.before_fence is not None:
            others, self.before_fence = self.before_fence, None
            others()
        super().write(name, data)  # type: ignore[misc]
