"""What a byte store does, on a dict that holds the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

from statestore.bytestore.protocol import Change, Pair


def pairs_between(model: Mapping[bytes, bytes], start: bytes | None, end: bytes | None, reverse: bool) -> list[Pair]:
    """Return what a range of a store that holds `model` yields, both ends inclusive, None = open."""
    pairs = (pair for pair in model.items() if (start or b"") <= pair[0] and (end is None or pair[0] <= end))
    return sorted(pairs, reverse=reverse)


def write_to(model: MutableMapping[bytes, bytes], changes: Iterable[Change]) -> None:
    """Apply the changes in order, as `write` does; a key that is put stands behind all others."""
    for key, value in changes:
        model.pop(key, None)
        if value is not None:
            model[key] = value
