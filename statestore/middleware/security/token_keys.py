"""Keys of tokens: one for one algorithm, and those that an identity provider publishes (JSON Web Key Set, RFC 7517).

A process fetches published keys once for all who ask, and again after five minutes, or when a token names a key that
is not among them: a new key is known at once, and one that is gone is no longer accepted. While the provider does not
answer, its keys go on for an hour; no record is refused for that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property, lru_cache
from http.client import HTTPException
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from statestore.errors import ServiceUnavailableError
from statestore.middleware.application import extra
from statestore.middleware.security.frames import is_key_id
from statestore.middleware.security.keys import Key, Keyring

with extra("auth"):
    import jwt
    from cryptography.hazmat.primitives import serialization

ALGORITHMS: Final = frozenset(f"{family}{bits}" for family in ("HS", "RS", "PS", "ES") for bits in (256, 384, 512)) | {
    "EdDSA"
}
SIGNATURES: Final = jwt.PyJWS()

_RSA_BITS_MIN: Final = 2048
_LOG: Final = logging.getLogger(__name__)
_FRESH_S: Final = 300.0
_HELD_S: Final = 3600.0
_APART_S: Final = 10.0
"""Between two requests for what tokens name, and after one that failed."""
_WAITS_S: Final = 10.0
_SET_BYTES_MAX: Final = 1 << 20
_HERE: Final = ("localhost", "127.0.0.1", "::1")


class TokenKey(Key):
    """A key for tokens of one algorithm only, so no token can pass off a public key as a secret.

    HS256, HS384, HS512      a secret of at least as many bits
    RS..., PS..., ES..., EdDSA      a public key in PEM, one of RSA of at least 2048 bits
    """

    def __init__(self, algorithm: str, key: bytes) -> None:
        """Raise ValueError for an unknown algorithm, such as `none`, or a key that does not fit it or is too short."""
        super().__init__(key)
        if algorithm not in ALGORITHMS:
            raise ValueError(f"the algorithm of a TokenKey is one of {sorted(ALGORITHMS)}, not {algorithm!r}")
        self.algorithm: Final = algorithm
        _ = self.prepared

    @cached_property
    def prepared(self) -> Any:
        """The key as PyJWT takes it."""
        algorithm = SIGNATURES.get_algorithm_by_name(self.algorithm)
        problem = f"a key can't be used for {self.algorithm}: it"
        try:
            prepared: Any = algorithm.prepare_key(self._material)
        except Exception as cause:  # whatever cryptography raises
            raise ValueError(f"{problem} is not a key of this algorithm ({type(cause).__name__})") from None
        least, found = _RSA_BITS_MIN, _bits(prepared)
        if self.algorithm.startswith("HS"):
            least, found = int(self.algorithm[2:]), len(self._material) * 8
        if found < least:
            raise ValueError(f"{problem} has {found} bits, and {least} are needed")
        return prepared

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.algorithm == getattr(other, "algorithm", None)

    def __hash__(self) -> int:
        return hash((self.algorithm, super().__hash__()))

    def __repr__(self) -> str:
        return f"TokenKey({self.algorithm!r}, ...)"

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenKey, (self.algorithm, self._material)


def _bits(key: Any) -> int:
    """Return the bits of an RSA key; as many as it needs for other keys, whose algorithms fix their size."""
    public = key.public_key() if hasattr(key, "public_key") else key
    is_rsa = hasattr(public, "public_numbers") and hasattr(public.public_numbers(), "e")
    return int(public.key_size) if is_rsa else _RSA_BITS_MIN


class PublishedKeys(Keyring):
    """The keys that are published at an address. Only who reads tokens needs them: it has no active one."""

    def __init__(self, address: str) -> None:
        """Fetch nothing yet. Raises ValueError unless the address is one of https, or of this machine."""
        super().__init__({})
        parts = urlsplit(address)
        if parts.scheme != "https" and (parts.scheme, parts.hostname in _HERE) != ("http", True):
            raise ValueError(
                "keys of tokens are fetched by https, or from this machine: else anybody could replace them"
            )
        self._address: Final = address

    def __getitem__(self, key_id: str) -> Key:
        published = _published(self._address)
        found = published.keys().get(key_id)
        return published.keys(for_unknown=True)[key_id] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(_published(self._address).keys())

    def __len__(self) -> int:
        return len(_published(self._address).keys())

    @property
    def _identity(self) -> Hashable:
        return self._address

    def __repr__(self) -> str:
        return f"keys of {urlsplit(self._address).hostname}"

    def __reduce__(self) -> tuple[Any, ...]:
        return PublishedKeys, (self._address,)


@lru_cache(maxsize=64)
def _published(address: str) -> _Published:
    return _Published(address)


class _Published:
    """What a process knows of the keys at an address."""

    def __init__(self, address: str) -> None:
        self._address: Final = address
        self._lock: Final = Lock()
        self._keys: Mapping[str, TokenKey] = {}
        self._fetched_at = self._asked_at = self._sought_at = float("-inf")
        self._problem = ""
        """What was wrong when it was asked last."""

    def keys(self, *, for_unknown: bool = False) -> Mapping[str, TokenKey]:
        """Return the keys, fetched again if they are old; `for_unknown` if that was not done for others just now.

        Raises ServiceUnavailableError if they can't be had.
        """
        with self._lock:
            now = monotonic()
            # Keys that were fetched for no token in particular may be from before a token's.
            is_due = now - self._sought_at >= _APART_S if for_unknown else now - self._fetched_at >= _FRESH_S
            if is_due and not (self._keys and self._problem and now - self._asked_at < _APART_S):
                self._fetch(now)
                self._sought_at = now if for_unknown else self._sought_at
            held_s = 0 if for_unknown else _HELD_S
            if self._problem and now - self._fetched_at >= held_s:
                service = f"the identity provider at {urlsplit(self._address).hostname}"
                raise ServiceUnavailableError(service, problem=self._problem)
            return self._keys

    def _fetch(self, now: float) -> None:
        self._asked_at = now
        try:
            self._keys = _keys_in(_read_in_time(self._address))
        except (OSError, HTTPException, ValueError) as error:
            self._problem = f"{type(error).__name__}: {error}"[:300]
            if isinstance(error, HTTPError):
                error.close()
            if self._keys:
                _LOG.warning("Keys of tokens can't be fetched again, and go on for an hour: %s", self._problem)
        else:
            self._fetched_at, self._problem = now, ""


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: it could lead away from https."""


def _read_in_time(address: str) -> bytes:
    """Return what `_read` returns. Raises what it raises, and TimeoutError: no more is waited for, not even headers."""
    answer: SimpleQueue[bytes | Exception] = SimpleQueue()

    def read() -> None:
        try:
            answer.put(_read(address))
        except Exception as error:  # raised below
            answer.put(error)

    Thread(target=read, daemon=True).start()
    try:
        found = answer.get(timeout=_WAITS_S)
    except Empty:
        raise TimeoutError(f"it takes more than {_WAITS_S} s to answer") from None
    if isinstance(found, Exception):
        raise found
    return found


def _read(address: str) -> bytes:
    """Return what is at an address. Raises OSError, HTTPException, and ValueError if it is too much."""
    ends_at = monotonic() + _WAITS_S
    data = bytearray()
    with build_opener(_NoRedirect).open(address, timeout=_WAITS_S) as response:
        while chunk := response.read1(1 << 16):
            data += chunk
            if len(data) > _SET_BYTES_MAX:
                raise ValueError(f"it sends more than {_SET_BYTES_MAX} bytes")
            if monotonic() > ends_at:
                raise TimeoutError(f"it takes more than {_WAITS_S} s to answer")
    return bytes(data)


def _keys_in(data: bytes) -> dict[str, TokenKey]:
    """Return the public keys for signatures that have an id. Raises ValueError if there are none."""
    try:
        published = json.loads(data)["keys"]
    except (KeyError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"it sends no key set ({type(error).__name__})") from None
    found: dict[str, TokenKey] = {}
    for each in published if isinstance(published, list) else ():
        try:
            found.setdefault(*_token_key(each))
        except Exception:  # whatever is wrong with one key; the others may be sound
            continue
    if not found:
        raise ValueError("it sends no public key for signatures that has an id")
    return found


def _token_key(published: Mapping[str, Any]) -> tuple[str, TokenKey]:
    """Return a key and its id. Raises anything for one that is secret, for something else, or can't be used."""
    key, key_id = jwt.PyJWK.from_dict(dict(published)), published["kid"]
    if key.public_key_use not in (None, "sig") or not is_key_id(key_id):
        raise ValueError("it is not for signatures, or has no id")
    encoding, layout = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return key_id, TokenKey(key.algorithm_name, key.key.public_bytes(encoding, layout))
