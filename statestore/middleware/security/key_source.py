"""Where an interceptor or a serde has its keys from: a ring, or what provides one where the keys are needed."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from statestore.errors.middleware import KeyUnusableError, UnknownKeyIdError
from statestore.interception.interceptor import InterceptorContext
from statestore.middleware.application import Application
from statestore.middleware.security.keys import Key, KeyProvider, Keyring

_K = TypeVar("_K", bound=Key)


class KeySource:
    """A ring that is given, or provided: at the first use, and again after `renewed`. Pickles what was given."""

    def __init__(self, given: KeyProvider, purpose: str) -> None:
        """`purpose` says in errors what the keys are for. Raises TypeError for what is neither ring nor function."""
        if not isinstance(given, Keyring) and not callable(given):
            raise TypeError(f"{purpose}: keys must be a Keyring, or a function that returns one")
        self._given: Final = given
        self.purpose: Final = purpose
        self._ring = given if isinstance(given, Keyring) else None

    @property
    def ring(self) -> Keyring:
        """The ring. Raises TypeError if what was provided is not one, and what the function raises."""
        if self._ring is None:
            assert not isinstance(self._given, Keyring)
            provided = self._given()
            if not isinstance(provided, Keyring):
                raise TypeError(
                    f"{self.purpose}: what provides keys must return a Keyring, not {type(provided).__name__}"
                )
            self._ring = provided
        return self._ring

    def renewed(self) -> KeySource:
        """Return a source that asks anew; this one if the ring was given."""
        return self if isinstance(self._given, Keyring) else KeySource(self._given, self.purpose)

    def active(self, kind: type[_K]) -> tuple[str, _K]:
        """Return id and key for what is new. Raises KeyUnusableError if there is none of this kind."""
        ring = self.ring
        if ring.active is None:
            raise KeyUnusableError(purpose=self.purpose, problem="the keyring has no active key: say which one is")
        key = ring[ring.active]
        if not isinstance(key, kind):
            problem = f"the active key {ring.active!r} is no {kind.__name__}, but {type(key).__name__}"
            raise KeyUnusableError(purpose=self.purpose, problem=problem)
        return ring.active, key

    def key(self, key_id: str, kind: type[_K]) -> _K:
        """Return a key by its id. Raises UnknownKeyIdError if there is none of this kind."""
        key = self.ring.get(key_id)
        if not isinstance(key, kind):
            raise UnknownKeyIdError(purpose=self.purpose, key_id=key_id)
        return key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySource) and (self._given, self.purpose) == (other._given, other.purpose)

    def __hash__(self) -> int:
        return hash((self._given, self.purpose))

    def __repr__(self) -> str:
        if isinstance(self._given, Keyring):
            return repr(self._given)
        return getattr(self._given, "__qualname__", type(self._given).__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeySource, (self._given, self.purpose)


class KeyedInterceptor(Application):
    """An interceptor with keys. Provided ones are got anew for each batch, where they are first needed in it."""

    _keys: KeySource

    def init(self, context: InterceptorContext) -> None:
        """Begin with a batch: the ring of a copy may be older."""
        super().init(context)
        self._keys = self._keys.renewed()

    def finish_batch(self) -> None:
        """Be ready for another batch, which an interceptor of a client or of the test driver sees, too."""
        self._keys = self._keys.renewed()
