"""Keys by their ids, so that a key can be replaced while there are still records of the old one.

A ring has the active key, which signs or encrypts new data, and others that are still accepted. Its repr shows ids,
never a key. A ring travels with a query to the executors, and its keys with it; a function that returns a ring does
not: it is called there.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from statestore.errors.middleware import KeyUnusableError, UnknownKeyIdError
from statestore.interception.interceptor import InterceptorContext
from statestore.middleware.application import Application, extra
from statestore.middleware.security.frames import KEY_ID_BYTES_MAX, is_key_id

with extra("signing"):  # or "encryption": both bring it
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["AesKey", "Ed25519PrivateKey", "Ed25519PublicKey", "HmacKey", "Key", "Keyring"]

SECRET_BYTES_MIN: Final = 32
"""The shortest secret of an HmacKey: as long as a SHA-256, as RFC 2104 advises."""

_SECRET_BYTES_MAX: Final = 1024
_KEYS_MAX: Final = 1000


class Key:
    """A key. Its bytes are never shown. Keys of the same class and bytes are equal."""

    def __init__(self, material: bytes) -> None:
        """Take the bytes of the key. Raises TypeError for anything else, ValueError for bytes that are not a key."""
        if not isinstance(material, bytes):
            raise TypeError(f"{type(self).__name__} is made of bytes, not of {type(material).__name__}")
        self._material: Final = material

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and hmac.compare_digest(self._material, other._material)

    def __hash__(self) -> int:
        return hash((type(self), self._material))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._material,)


class SignatureKey(Key, ABC):
    """A key that verifies signatures, and makes them unless it is a public one."""

    algorithm: ClassVar[int]
    """The algorithm's number in a signature. Never renumber."""
    signs: ClassVar[bool] = True

    @abstractmethod
    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message. Raises TypeError for a public key."""

    @abstractmethod
    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether this is the signature of a message."""


class HmacKey(SignatureKey):
    """A secret that both sides have, for HMAC-SHA256 (RFC 2104): 32 to 1024 bytes."""

    algorithm = 1

    def __init__(self, secret: bytes) -> None:
        """Take the secret: random bytes, not a password. Raises ValueError for another length."""
        super().__init__(secret)
        if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
            raise ValueError(
                f"the secret of an HmacKey has {SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX} bytes, not {len(secret)}"
            )

    def sign(self, message: bytes) -> bytes:
        """Return the HMAC-SHA256 of a message, 32 bytes."""
        return hmac.digest(self._material, message, "sha256")

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether this is the message's signature, in constant time."""
        return hmac.compare_digest(self.sign(message), signature)


class _Ed25519Key(SignatureKey):
    algorithm = 2

    def __init__(self, key: bytes) -> None:
        """Take the key. Raises ValueError for bytes that are not such a key, TypeError for anything else."""
        super().__init__(_raw_key(key, private=self.signs))
        _ = self._verifier

    @cached_property
    @abstractmethod
    def _verifier(self) -> ed25519.Ed25519PublicKey: ...

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether this is a signature of the message."""
        try:
            self._verifier.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class Ed25519PublicKey(_Ed25519Key):
    """A public key of Ed25519 (RFC 8032), as 32 bytes or in PEM: verifies, and can't sign."""

    signs = False

    @cached_property
    def _verifier(self) -> ed25519.Ed25519PublicKey:
        return ed25519.Ed25519PublicKey.from_public_bytes(self._material)

    def sign(self, message: bytes) -> bytes:
        """Raise TypeError: only the private key signs."""
        raise TypeError("a public key can't sign")


class Ed25519PrivateKey(_Ed25519Key):
    """A private key of Ed25519 (RFC 8032), as 32 bytes or in PEM without a password: signs and verifies."""

    @cached_property
    def _signer(self) -> ed25519.Ed25519PrivateKey:
        return ed25519.Ed25519PrivateKey.from_private_bytes(self._material)

    @cached_property
    def _verifier(self) -> ed25519.Ed25519PublicKey:
        return self._signer.public_key()

    @property
    def public_key(self) -> Ed25519PublicKey:
        """The key with which others verify what this one signs."""
        return Ed25519PublicKey(self._verifier.public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes; equal messages have the same one."""
        return self._signer.sign(message)


class AesKey(Key):
    """A key for AES in Galois/Counter Mode: 16, 24 or 32 random bytes."""

    def __init__(self, key: bytes) -> None:
        """Take the key. Raises ValueError for another length."""
        super().__init__(key)
        if len(key) not in (16, 24, 32):
            raise ValueError(f"an AesKey has 16, 24 or 32 bytes, not {len(key)}")

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._material)

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        """Return the ciphertext and its tag, 16 bytes more; only the same `bound` decrypts it."""
        return self._cipher.encrypt(nonce, data, bound)

    def decrypt(self, nonce: bytes, ciphertext: bytes, bound: bytes) -> bytes | None:
        """Return the plaintext; None if the key is another, or anything was changed."""
        try:
            return self._cipher.decrypt(nonce, ciphertext, bound)
        except InvalidTag:
            return None


class Keyring(Mapping[str, Key]):
    """Keys by their ids. Rings with the same keys and the same active one are equal."""

    def __init__(self, keys: Mapping[str, Key], active: str | None = None) -> None:
        """Take keys by their ids, which are not secret; `active` is the id of the one for new data, if there is one.

        Rotation: add a key everywhere, then make it active, and remove the old one when nothing of it is left.
        Raises TypeError if a key is not a Key, ValueError for ids that are empty, not printable or longer than
        255 bytes, for an active one that is not there, and for more than 1000 keys.
        """
        if len(keys) > _KEYS_MAX:
            raise ValueError(f"a keyring has at most {_KEYS_MAX} keys, not {len(keys)}")
        for key_id, key in keys.items():
            if not is_key_id(key_id):
                raise ValueError(
                    f"a key id is 1 to {KEY_ID_BYTES_MAX} bytes of printable text, not {str(key_id)[:80]!r}"
                )
            if not isinstance(key, Key):
                raise TypeError(f"key {key_id!r} of a keyring must be a Key, not {type(key).__name__}")
        if active is not None and active not in keys:
            raise ValueError(f"the active key {active!r} is not in the keyring, which has {sorted(keys)}")
        self._keys: Final = dict(keys)
        self._active: Final = active

    @property
    def active(self) -> str | None:
        """The id of the key for new data, if there is one."""
        return self._active

    def __getitem__(self, key_id: str) -> Key:
        return self._keys[key_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyring) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> Hashable:
        return frozenset(self._keys.items()), self._active

    def __repr__(self) -> str:
        return f"Keyring({self._keys!r}, active={self._active!r})"


KeyProvider: TypeAlias = "Keyring | Callable[[], Keyring]"
"""A keyring, or a function that returns one. It is called on the executors for every shard and micro-batch that needs a
key, so it should remember a ring that is slow to get."""


_K = TypeVar("_K", bound=Key)


@dataclass(frozen=True, repr=False)
class KeySource:
    """A ring, or a function that provides it at the first use, and again after `renewed`. Pickles what was given."""

    given: KeyProvider
    purpose: str
    """What the keys are for, in errors."""

    def __post_init__(self) -> None:
        if not isinstance(self.given, Keyring) and not callable(self.given):
            raise TypeError(f"{self.purpose}: keys must be a Keyring, or a function that returns one")

    @cached_property
    def ring(self) -> Keyring:
        """The ring. Raises what the function raises, and TypeError if it returns anything else."""
        found = self.given if isinstance(self.given, Keyring) else self.given()
        if not isinstance(found, Keyring):
            raise TypeError(f"{self.purpose}: what provides keys must return a Keyring, not {type(found).__name__}")
        return found

    def renewed(self) -> KeySource:
        """Return a source that asks anew; this one if the ring was given."""
        return self if isinstance(self.given, Keyring) else KeySource(self.given, self.purpose)

    def active(self, kind: type[_K]) -> tuple[str, _K]:
        """Return the active key and its id. Raises KeyUnusableError if there is none of this kind."""
        active = self.ring.active  # once: later it may be another one
        if active is None:
            raise KeyUnusableError(purpose=self.purpose, problem="the keyring has no active key: say which one is")
        key = self.ring[active]
        if not isinstance(key, kind):
            problem = f"the active key {active!r} must be of class {kind.__name__}, not {type(key).__name__}"
            raise KeyUnusableError(purpose=self.purpose, problem=problem)
        return active, key

    def key(self, key_id: str, kind: type[_K]) -> _K:
        """Return a key by its id. Raises UnknownKeyIdError if there is none of this kind."""
        key = self.ring.get(key_id)
        if not isinstance(key, kind):
            raise UnknownKeyIdError(purpose=self.purpose, key_id=key_id)
        return key

    def __repr__(self) -> str:
        if isinstance(self.given, Keyring):
            return repr(self.given)
        return getattr(self.given, "__qualname__", type(self.given).__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeySource, (self.given, self.purpose)


class KeyedInterceptor(Application):
    """An interceptor with keys. A function that provides them is called once a batch, where they are first needed."""

    def __init__(self, keys: KeyProvider, *, emits: bool, ingests: bool, required: bool) -> None:
        """Say whether it changes what is emitted, whether it checks what is ingested, and whether that is required."""
        self._keys = KeySource(keys, self.kind)
        self._emits: Final = emits
        self._ingests: Final = ingests
        self._required: Final = required

    def init(self, context: InterceptorContext) -> None:
        """Begin a batch with fresh keys: those of a copy may be older."""
        super().init(context)
        self._keys = self._keys.renewed()

    def finish_batch(self) -> None:
        """Have fresh keys in the next batch: clients and the test driver go on with the same interceptor."""
        self._keys = self._keys.renewed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._keys!r})"


def _raw_key(key: bytes, *, private: bool) -> bytes:
    """Return the 32 bytes of an Ed25519 key, which may be in PEM. Raises ValueError, which shows nothing of it."""
    if not isinstance(key, bytes) or len(key) == 32:
        return key
    what = "private" if private else "public"
    try:
        found = serialization.load_pem_private_key(key, None) if private else serialization.load_pem_public_key(key)
    except Exception as cause:
        problem = f"a {what} key of Ed25519 is 32 bytes, or PEM without a password: {type(cause).__name__}"
        raise ValueError(problem) from None
    if private and isinstance(found, ed25519.Ed25519PrivateKey):
        return found.private_bytes_raw()
    if not private and isinstance(found, ed25519.Ed25519PublicKey):
        return found.public_bytes_raw()
    raise ValueError(f"the PEM must be of a {what} key of Ed25519, not {type(found).__name__}")
