"""Agreement on one content for `statestore.json` among all who want to record one, whoever of them is killed.

    starting/GENERATION-BALLOT-promised-ID     empty: ID asks
    starting/GENERATION-BALLOT-accepted-ID     the content that ID asks for with that ballot

Agreement is on the content of one generation: 0 is the first. No filesystem that we write to can compare and set; a
listing shows what was written before it began. That is enough for Disk Paxos on a single disk. Ballots are ordered by
number, then by ID. Whoever asks promises a ballot, and lists. If somebody has a higher one, it waits and asks again
with one above. Else it accepts, with its ballot, what was accepted with the highest one so far, or its own if there is
none, and lists again. If nobody has a higher ballot by then, that content is agreed on. For whoever promises a higher
one after that finds it accepted when it lists, and can only accept the same.

So nobody waits for one that was killed, or is slow. The files of the last generations stay when their content is
recorded: one that was slow may record what it agreed on long ago over what came after. Whoever reads it then finds that
a content was accepted for the next generation, asks as well, and learns what was agreed on.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from statestore.errors import LocationBusyError
from statestore.recovery.location.durable_json import MAX_DOCUMENT_BYTES, write_document
from statestore.recovery.location.durable_location import DurableLocation

AGREEMENT_DIRECTORY: Final = "starting"
_NAME: Final = re.compile(r"(\d{8})-(\d{8})-(promised|accepted)-([0-9a-f]{32})")
_KEPT_GENERATIONS: Final = 16
_FIRST_WAIT_S: Final = 0.1
_TRIES: Final = 8
"""Waits double, with jitter: some 6 s to 13 s in all."""


class _Ballot(NamedTuple):
    number: int
    asker: str


def agree(location: DurableLocation, generation: int, content: bytes, is_recorded: Callable[[], bool]) -> bytes | None:
    """Return the content that is agreed on, None if it was recorded. Raises LocationBusyError after many seconds."""
    asker = uuid.uuid4().hex
    number, wait_s = 0, _FIRST_WAIT_S
    for _ in range(_TRIES):
        ballots = _ballots(location, generation)
        number = max([number, *(ballot.number for ballot in ballots)]) + 1
        mine = _Ballot(number, asker)
        location.write(_name(generation, mine, "promised"), b"")
        ballots = _ballots(location, generation)
        if is_recorded():
            return None
        if max(ballots, default=mine) == mine:
            accepted = max((ballot for ballot, name in ballots.items() if name is not None), default=None)
            name = None if accepted is None else ballots[accepted]
            found = None if name is None else location.read(name, MAX_DOCUMENT_BYTES)
            value = content if name is None else None if found is None else found.to_pybytes()
            # One that is gone by now was removed long after the content was recorded, which the next round finds.
            if value is not None:
                write_document(location, _name(generation, mine, "accepted"), value)
                highest = max(_ballots(location, generation), default=mine)
                if is_recorded():
                    return None
                if highest == mine:
                    return value
        time.sleep(random.uniform(wait_s / 2, wait_s))
        wait_s *= 2
    highest = max(_ballots(location, generation), default=mine)
    raise LocationBusyError(
        str(location),
        file=location.path(_name(generation, highest, "promised")),
        by="others that start at the same time",
    )


def may_be_agreed(location: DurableLocation, generation: int) -> bool:
    """Return whether anybody has accepted a content for a generation: without that, none is agreed on yet."""
    return any(name is not None for name in _ballots(location, generation).values())


def forget_agreements(location: DurableLocation, generation: int) -> None:
    """Remove the files of generations long before this one, which is recorded."""
    if generation < _KEPT_GENERATIONS:
        return
    names = location.names(AGREEMENT_DIRECTORY)
    parsed = ((name, _parse_name(name)) for name in names)
    location.delete_all(name for name, at in parsed if at is not None and int(at[1]) <= generation - _KEPT_GENERATIONS)


def _name(generation: int, ballot: _Ballot, kind: str) -> str:
    return f"{AGREEMENT_DIRECTORY}/{generation:08d}-{ballot.number:08d}-{kind}-{ballot.asker}"


def _ballots(location: DurableLocation, generation: int) -> dict[_Ballot, str | None]:
    """Return the ballots that were promised, and where each has what was accepted with it: None if nothing was."""
    ballots: dict[_Ballot, str | None] = {}
    for name in location.names(AGREEMENT_DIRECTORY):
        found = _parse_name(name)
        if found is not None and int(found[1]) == generation:
            ballot = _Ballot(int(found[2]), found[4])
            ballots[ballot] = name if found[3] == "accepted" else ballots.get(ballot)
    return ballots


def _parse_name(name: str) -> re.Match[str] | None:
    return _NAME.fullmatch(name.rpartition("/")[2])
