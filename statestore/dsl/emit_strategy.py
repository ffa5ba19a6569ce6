"""EmitStrategy: when the aggregate of a window is put out. Source: Kafka Streams' EmitStrategy (KIP-825)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EmitStrategy:
    """Whether a window is put out at each change, or once when it closes."""

    is_final: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Return the strategy of putting out each change: the default."""
        return cls(False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Return the strategy of putting a window out once, when its grace has passed in event time."""
        return cls(True)
