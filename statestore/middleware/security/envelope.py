"""Keys in envelopes: a data key for each context and period, wrapped by a master key that never leaves its vault.

    key_id := the wrapped data key, as the vault writes it: printable text of at most 255 bytes

A ciphertext or signature brings the wrapped key as its key id, so the vault is all that it takes to read it, whenever.
A process makes its own data keys, each of 32 random bytes, and asks the vault once to wrap one and once to unwrap one
of others. It forgets each after a period: until then it works without the vault, afterwards it raises. Keys are in
memory only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property, lru_cache
from threading import Lock
from time import monotonic
from typing import Any, Final

from statestore.connect.recently_used import RecentlyUsed
from statestore.errors import ServiceUnavailableError, StateStoreError
from statestore.errors.middleware import KeyUnusableError
from statestore.middleware.security.frames import KEY_ID_BYTES_MAX, is_key_id
from statestore.middleware.security.keys import AesKey, HmacKey, Key, Keyring
from statestore.middleware.security.vaults import Vault, VaultError, vault_at

__all__ = ["EnvelopeKeys"]

_KEY_BYTES: Final = 32
_KEPT_KEYS: Final = 1000
_REFUSED_FOR_S: Final = 60.0
_UNKNOWN: Final = (None, float("-inf"))


class EnvelopeKeys(Keyring):
    """A ring of data keys, which a vault wraps and unwraps; the active one changes after each period.

    For encryption, or with `kind=HmacKey` for signing. A key id is the wrapped key, of some 100 to 250 bytes.

    Args:
        vault: what has the master key: aws-kms://KEY, vault-transit://MOUNT/KEY, file:///PATH, or an object with `wrap`
            and `unwrap`.
        context: what the keys are for, such as a topic or store. Those of another context are refused.
        kind: AesKey or HmacKey.
        period_ms: how long a process uses a data key for new data, and remembers one that was unwrapped.
        also: keys from before; another EnvelopeKeys, too, when its vault is left.
    """

    def __init__(
        self,
        vault: str | Vault,
        context: str,
        *,
        kind: type[AesKey | HmacKey] = AesKey,
        period_ms: int = 86_400_000,
        also: Keyring | None = None,
    ) -> None:
        """Ask nobody yet. Raises ValueError for an unknown scheme, no context, or a period below a second."""
        super().__init__({} if also is None else also)
        if kind not in (AesKey, HmacKey):
            raise ValueError(f"data keys are of class AesKey or HmacKey, not {kind!r}")
        if not context or period_ms < 1000:
            raise ValueError(f"there must be a context, and a period of a second or more, not {context!r}, {period_ms}")
        self._vault: Final = vault_at(vault) if isinstance(vault, str) else vault
        self._arguments: Final[tuple[Any, ...]] = (self._vault, context, kind, period_ms)
        self._also: Final = Keyring({}) if also is None else also
        """The ids that it lists are those of this ring, too."""

    @property
    def active(self) -> str:
        """The id of the data key for new data. Raises ServiceUnavailableError, and KeyUnusableError for longer ids."""
        return self._data_keys.active()

    @cached_property
    def _data_keys(self) -> _DataKeys:
        return _data_keys(*self._arguments)

    def __getitem__(self, key_id: str) -> Key:
        found, unavailable = self._remembered(key_id), None
        try:
            found = found or self._data_keys.key(key_id)
        except ServiceUnavailableError as error:
            unavailable = error  # and the key may be one of the others
        found = found or self._also.get(key_id)
        if found is None:
            raise unavailable or KeyError(key_id)
        return found

    def _remembered(self, key_id: str) -> Key | None:
        """Return a key for which no vault is asked: of two, one may be down."""
        also = self._also
        known = also._remembered(key_id) if isinstance(also, EnvelopeKeys) else also.get(key_id)
        return known or self._data_keys.remembered(key_id)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self._also, *self._arguments

    def __repr__(self) -> str:
        return f"EnvelopeKeys({self._vault!r}, {self._arguments[1]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, self._identity


def _made(also: Keyring, vault: Vault, context: str, kind: type[AesKey | HmacKey], period_ms: int) -> EnvelopeKeys:
    return EnvelopeKeys(vault, context, kind=kind, period_ms=period_ms, also=also)


class _DataKeys:
    """The data keys that a process has of one vault and context."""

    def __init__(self, vault: Vault, context: str, kind: type[AesKey | HmacKey], period_ms: int) -> None:
        self._vault: Final = vault
        self._context: Final = context
        self._kind: Final = kind
        self._period_s: Final = period_ms / 1000
        self._lock: Final = Lock()
        self._active, self._active_until = "", float("-inf")
        self._known: Final = RecentlyUsed(_KEPT_KEYS)
        """By id a key, and until when it is remembered."""
        self._refused: Final = RecentlyUsed(_KEPT_KEYS)
        """Likewise None, where the vault did not unwrap the id. Made up ones push no key out."""

    def active(self) -> str:
        with self._lock:
            if monotonic() >= self._active_until:
                data_key = os.urandom(_KEY_BYTES)
                wrapped = self._ask(self._vault.wrap, data_key)
                if not is_key_id(wrapped):
                    problem = f"it must wrap a data key as printable text of at most {KEY_ID_BYTES_MAX} bytes"
                    raise KeyUnusableError(purpose=repr(self._vault), problem=problem)
                self._active, self._active_until = wrapped, monotonic() + self._period_s
                self._known.put(wrapped, (self._kind(data_key), self._active_until))
            return self._active

    def remembered(self, key_id: str) -> Key | None:
        """Return a key for which the vault need not be asked."""
        with self._lock:
            key, until = self._known.find(key_id) or _UNKNOWN
            found: Key | None = key if monotonic() < until else None
            return found

    def key(self, key_id: str) -> Key | None:
        """Return a key; None if the vault does not unwrap its id. Raises ServiceUnavailableError."""
        with self._lock:
            key, until = self._known.find(key_id) or self._refused.find(key_id) or _UNKNOWN
            if monotonic() >= until:
                data_key = self._ask(self._vault.unwrap, key_id)
                is_key = isinstance(data_key, bytes) and len(data_key) == _KEY_BYTES
                key, until = (self._kind(data_key), self._period_s) if is_key else (None, _REFUSED_FOR_S)
                (self._known if is_key else self._refused).put(key_id, (key, monotonic() + until))
            found: Key | None = key
            return found

    def _ask(self, ask: Callable[[Any, str], Any], what: Any) -> Any:
        now = monotonic()
        self._known.keep(lambda entry: now < entry[1])
        try:
            return ask(what, self._context)
        except StateStoreError:
            raise  # an extra is missing
        except Exception as error:
            problem = str(error) if isinstance(error, VaultError) else type(error).__name__
        raise ServiceUnavailableError(repr(self._vault), problem=problem)  # leads to no error that holds a key


_data_keys = lru_cache(maxsize=64)(_DataKeys)
