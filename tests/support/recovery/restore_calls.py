"""A listener to restores that remembers what it was told."""

from __future__ import annotations

from typing import Any


class RestoreCalls:
    """Each call is one of "start", "batch" and "end", and its facts."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_restore_start(self, *facts: Any) -> None:
        """Remember the start."""
        self.calls.append(("start", *facts))

    def on_batch_restored(self, *facts: Any) -> None:
        """Remember a batch."""
        self.calls.append(("batch", *facts))

    def on_restore_end(self, *facts: Any) -> None:
        """Remember the end."""
        self.calls.append(("end", *facts))
