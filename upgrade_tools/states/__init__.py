"""State wherever it lies, read in one way: task directories of Kafka Streams, local copies, state locations."""

from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import FoundStore, Layout, OpenStore, State, StateOptions

__all__ = ["FoundStore", "Layout", "OpenStore", "State", "StateOptions", "open_state"]
