"""One query, one state location: who may write to it.

A query is known by the id that Spark keeps in its checkpoint, so restarts are the same query. `owners/QUERY_ID` is its
claim. A second query finds the first one's claim and stops before it has written anything else. Should two queries
claim a location at the same moment, each may see the other and both stop, having withdrawn: starting one of them again
settles it.
"""

from __future__ import annotations

from statestore.errors import LocationInUseError
from statestore.recovery.location import DurableLocation
from statestore.recovery.location.recorded_names import path_part

_DIRECTORY = "owners"


def claim(location: DurableLocation, query_id: str) -> None:
    """Make the query `query_id` the owner of `location`. Raises LocationInUseError if another one is."""
    mine = f"{_DIRECTORY}/{path_part(query_id)}"
    claims = location.names(_DIRECTORY)
    _refuse_others(location, claims, query_id)
    if mine in claims:
        return
    location.write(mine, b"")
    try:
        _refuse_others(location, location.names(_DIRECTORY), query_id)
    except LocationInUseError:
        location.delete(mine)
        raise


def _refuse_others(location: DurableLocation, claims: list[str], query_id: str) -> None:
    for name in claims:
        owner = name.removeprefix(f"{_DIRECTORY}/")
        # A writer's partial file is not a claim yet.
        if owner != query_id and not owner.endswith(".partial"):
            raise LocationInUseError(str(location), owner=owner, query=query_id)
