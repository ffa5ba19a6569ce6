"""A cache of a bounded number of entries, which forgets the one that was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final

_MISSING: Final = object()


class RecentlyUsed:
    """What was made for the keys that were asked for last; what raises instead of making something is not kept.

    For several threads: those of a process share what registries and interceptors keep. It is pickled without entries.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made for a key, and make it if it is not there; two threads may both make it."""
        entry = self._find(key, _MISSING)
        if entry is _MISSING:
            entry = make()
            self.put(key, entry)
        return entry

    def find(self, key: Hashable) -> Any:
        """Return what was put in for a key; None if that is not there."""
        return self._find(key, None)

    def put(self, key: Hashable, entry: Any) -> None:
        """Put in an entry, and forget the one that was used longest ago if there are too many."""
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > max(self._size, 0):
                self._entries.popitem(last=False)

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Take out all other entries than those."""
        with self._lock:
            for key in [key for key, entry in self._entries.items() if not is_kept(entry)]:
                del self._entries[key]

    def forget(self, key: Hashable) -> None:
        """Take out an entry, if it is there."""
        with self._lock:
            self._entries.pop(key, None)

    def _find(self, key: Hashable, missing: Any) -> Any:
        with self._lock:
            if key not in self._entries:
                return missing
            self._entries.move_to_end(key)
            return self._entries[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._size,)
