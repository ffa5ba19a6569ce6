"""Why a peer has no figures."""

from __future__ import annotations

from typing import Final

from statestore.errors import HarnessError

_TAIL_LINES: Final = 30


class PeerError(HarnessError):
    """A peer did not run to its end, or can't be started; `output` is the end of what it said."""

    def __init__(self, problem: str, *, output: str) -> None:
        super().__init__(f"{problem}:\n{output}" if output else problem)
        self.problem = problem
        self.output = output


def tail(text: str) -> str:
    """Return the last lines."""
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
