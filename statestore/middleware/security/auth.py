"""Tokens that say whose a record is, checked before the record reaches state.

`Authentication` checks a record's token (a JSON Web Token, RFC 7519), and leaves its claims in a header that nobody
else can write; `claims_of` reads it, and `authorization` asks a policy about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect.recently_used import RecentlyUsed
from statestore.errors import RecordRefusedError, TokenRefusedError
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.middleware.application import extra, options, value_of, with_header_where
from statestore.middleware.security.frames import is_key_id
from statestore.middleware.security.keys import KeyedInterceptor, KeyProvider, Keyring
from statestore.middleware.security.token_keys import ALGORITHMS, SIGNATURES, PublishedKeys, TokenKey

with extra("auth"):
    import jwt

if TYPE_CHECKING:
    from jwt.types import Options

__all__ = ["TOKEN_HEADER", "Authentication", "TokenKey", "claims_of"]

TOKEN_HEADER: Final = "statestore-token"
"""The header of a record's token, in JWT's compact form."""
CLAIMS_HEADER: Final = "statestore-claims"
"""The header of a verified token's claims, as JSON. Only Authentication writes it: it removes any other."""

_CLAIMS_BYTES_MAX: Final = 4 << 10
_TIME_MAX: Final = 2**53
_SUBJECT: Final = "sub"
_UNCHECKED: Final[Options] = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["exp"]}
"""PyJWT checks times by the machine's clock; this module does it by the batch's."""
_TOKENS: Final = jwt.PyJWT()


class _Verified(NamedTuple):
    """What each record with a verified token needs of it."""

    claims: bytes
    begins_ms: int
    ends_ms: int
    key_id: str
    key: TokenKey


class _VerifiedTokens(RecentlyUsed):
    """The tokens used last that were verified. Copies share them; they are never pickled or shown."""

    def __repr__(self) -> str:
        return f"{len(self)} tokens"


class Authentication(KeyedInterceptor):
    """Checks the token of each ingested record, and puts one of its own on emitted records.

    The chosen claims go into the record's CLAIMS_HEADER, also in state, and the token is removed. Headers of that name
    are removed if they come from outside, with or without a token, and from emitted records: claims go to nobody else.
    A token that comes with many records is verified once. Its expiry is checked for each record, by the batch's clock,
    so a retried batch refuses the same.

    Args:
        keys: TokenKeys by the key ids (`kid`) of tokens; a ring of one key also takes tokens without an id. None for an
            interceptor that only emits: it checks no tokens.
        jwks: instead of keys, the https address at which an identity provider publishes them (JSON Web Key Set).
        algorithms: those that tokens may use; keys need at least one. `none` is refused.
        issuer: the issuer that tokens must name; None accepts any.
        audience: tokens must name one of these; None accepts only tokens without an audience.
        leeway_ms: how far clocks may differ, in milliseconds.
        max_bytes: the size of the largest token, in bytes.
        required: whether a record without a token is refused; if not, it passes without claims.
        keep: whether the token stays with the record, in state too, where whoever reads it can use it.
        claims: the claims to keep beside `sub`, the token's subject; at most 4096 bytes of JSON.
        header: the name of the token's header.
        token: the token of emitted records, or a function that returns it. It is called for each record or column, so
            it should remember the token.
        audit_topic: where refused records go, with their tokens, instead of the query's dead letters.
        cache_size: how many verified tokens are remembered.
    """

    kind = "token"
    _options = options(
        CLASS="keys token",
        LIST="algorithms audience claims",
        STRING="jwks issuer header audit.topic",
        LONG="leeway.ms",
        INT="max.bytes cache.size",
        BOOLEAN="required keep",
    )
    not_after: ClassVar[Mapping[str, str]] = {
        "signing": "a token has to be signed with its record, or it can be put on another one; and what comes in would "
        "be given claims before it is verified"
    }
    not_before: ClassVar[Mapping[str, str]] = {
        "authorization": "what is ingested passes the last interceptor first, and who a record is of has to be known "
        "before a policy is asked"
    }

    def __init__(
        self,
        keys: KeyProvider | None = None,
        *,
        jwks: str | None = None,
        algorithms: Sequence[str] = (),
        issuer: str | None = None,
        audience: str | Sequence[str] | None = None,
        leeway_ms: int = 0,
        max_bytes: int = 8 << 10,
        required: bool = True,
        keep: bool = False,
        claims: Sequence[str] = (),
        header: str = TOKEN_HEADER,
        token: str | Callable[[], str] | None = None,
        audit_topic: str | None = None,
        cache_size: int = 1000,
    ) -> None:
        """Raise ValueError for unknown algorithms, and with neither keys nor token; TypeError for a text as a list.

        ValueError, too, for keys without algorithms, sizes and times out of range, and CLAIMS_HEADER as `header`.
        """
        if isinstance(algorithms, str) or isinstance(claims, str):
            raise TypeError("algorithms and claims are lists of names, not one text")
        if unknown := sorted(set(algorithms) - ALGORITHMS):
            raise ValueError(f"algorithms must be of {sorted(ALGORITHMS)}, not {unknown}")
        if jwks is not None:
            if keys is not None:
                raise ValueError("keys are given, or published at an address (jwks), not both")
            keys = PublishedKeys(jwks)
        if keys is None and token is None:
            raise ValueError("it needs keys to check tokens with, or a token to put on records")
        if keys is not None and not algorithms:
            raise ValueError("algorithms must say which ones tokens may be of, such as ['ES256']")
        if leeway_ms < 0 or max_bytes < 1 or cache_size < 1:
            raise ValueError("leeway_ms must be 0 or more, max_bytes and cache_size 1 or more")
        if header == CLAIMS_HEADER:
            raise ValueError(f"header {CLAIMS_HEADER!r} is for claims: name another one for tokens")
        own = Keyring({}) if keys is None else keys
        super().__init__(own, emits=token is not None, ingests=keys is not None, required=required)
        self._algorithms: Final = tuple(algorithms)
        self._issuer: Final = issuer
        self._audience: Final = [audience] if isinstance(audience, str) else audience
        self._leeway_ms: Final = leeway_ms
        self._max_bytes: Final = max_bytes
        self._keep: Final = keep
        self._claims: Final = frozenset((_SUBJECT, *claims))
        self._header: Final = header
        self._token: Final = token
        self._audit_topic: Final = audit_topic
        self._verified: Final = _VerifiedTokens(cache_size)
        self.goes_by = (CLAIMS_HEADER, header)

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Check a record's token, and add its claims. Raises TokenRefusedError and UnknownKeyIdError."""
        headers = record.headers
        claims = self._claims_of(value_of(headers, self._header))
        headers.remove(CLAIMS_HEADER)
        if self._ingests and not self._keep:
            headers.remove(self._header)
        if claims is not None:
            headers.add(CLAIMS_HEADER, claims)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Check tokens, each distinct one once."""
        tokens = records.header(self._header).dictionary_encode()
        indices = pc.fill_null(tokens.indices, len(tokens.dictionary))
        each = [*tokens.dictionary.to_pylist(), *([None] if tokens.null_count else [])]
        claims = pa.array([self._claims_of(token) for token in each], pa.binary()).take(indices)
        made = records.without_header(CLAIMS_HEADER)
        if self._ingests and not self._keep:
            made = made.without_header(self._header)
        return with_header_where(made, claims.is_valid(), CLAIMS_HEADER, claims)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Remove a record's claims, and put the token on it in place of any other."""
        if CLAIMS_HEADER in record.headers:
            record.headers.remove(CLAIMS_HEADER)
        if self._token is not None:
            record.headers.remove(self._header).add(self._header, self._own_token())
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Remove claims, and put the token on."""
        made = records.without_header(CLAIMS_HEADER)
        if self._token is None:
            return made
        return made.without_header(self._header).with_header(self._header, self._own_token())

    def _own_token(self) -> bytes:
        token = self._token() if callable(self._token) else self._token
        if not isinstance(token, str):
            raise TypeError(f"what returns the token must return a str, not {type(token).__name__}")
        return token.encode()

    def _claims_of(self, token: bytes | None) -> bytes | None:
        """Return the claims of a token that is valid now; None if there is none and none is required."""
        if not self._ingests:
            return None
        try:
            if token is None:
                if self._required:
                    raise TokenRefusedError(reason=f"there is no header {self._header!r}")
                return None
            verified = self._verified_token(token)
            now_ms = self._now_ms()
            if now_ms >= verified.ends_ms + self._leeway_ms:
                self._verified.forget(token)
                raise TokenRefusedError(reason=f"it has expired, {now_ms - verified.ends_ms} ms ago")
            if now_ms < verified.begins_ms - self._leeway_ms:
                raise TokenRefusedError(reason=f"it is not valid before {verified.begins_ms - now_ms} ms from now")
        except RecordRefusedError as refused:
            refused.audit_topic = self._audit_topic
            raise
        return verified.claims

    def _verified_token(self, token: bytes) -> _Verified:
        verified: _Verified = self._verified.get(token, lambda: self._verify(token))
        key = self._keys.ring.get(verified.key_id)
        if key is not verified.key and key != verified.key:  # it was taken away
            self._verified.forget(token)
            return self._verified_token(token)
        return verified

    def _verify(self, token: bytes) -> _Verified:
        if len(token) > self._max_bytes:
            raise TokenRefusedError(reason=f"it has {len(token)} bytes, and {self._max_bytes} are allowed")
        key_id, key = self._key(token)
        try:
            claims = _TOKENS.decode(
                token, key.prepared, [key.algorithm], _UNCHECKED, audience=self._audience, issuer=self._issuer
            )
        except jwt.PyJWTError as error:
            _refuse(error, key_id)
        begins_ms = max(_time_ms(claims, name) or 0 for name in ("nbf", "iat"))
        ends_ms = _time_ms(claims, "exp")
        assert ends_ms is not None  # it is required
        kept = {name: value for name, value in claims.items() if name in self._claims}
        data = json.dumps(kept, separators=(",", ":"), sort_keys=True).encode()
        if len(data) > _CLAIMS_BYTES_MAX:
            raise TokenRefusedError(reason=f"its claims take {len(data)} bytes, and {_CLAIMS_BYTES_MAX} are allowed")
        return _Verified(data, begins_ms, ends_ms, key_id, key)

    def _key(self, token: bytes) -> tuple[str, TokenKey]:
        """Return id and key that a token names. Raises TokenRefusedError if they do not fit its algorithm."""
        try:
            header = SIGNATURES.get_unverified_header(token)
        except jwt.PyJWTError as error:
            _refuse(error, "")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise TokenRefusedError(reason=f"its algorithm {str(algorithm)[:20]!r} is not one of {self._algorithms}")
        if key_id is None and len(self._keys.ring) == 1:
            (key_id,) = self._keys.ring
        if not is_key_id(key_id):
            raise TokenRefusedError(reason="it names no key, or an illegal key id")
        key = self._keys.key(key_id, TokenKey)
        if key.algorithm != algorithm:
            raise TokenRefusedError(reason=f"its algorithm {algorithm!r} is not that of key {key_id!r}")
        return key_id, key

    def __repr__(self) -> str:
        return f"Authentication({self._keys!r}, algorithms={list(self._algorithms)})"


def claims_of(headers: Headers) -> Mapping[str, Any]:
    """Return the claims that Authentication kept of a record's token; empty if it had none.

    Without Authentication in the chain, anybody may have written them. Raises TokenRefusedError for claims that can't
    be read.
    """
    return read_claims(value_of(headers, CLAIMS_HEADER))


NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})


@lru_cache(maxsize=1000)
def read_claims(data: bytes | None) -> Mapping[str, Any]:
    """Return the claims in the bytes of their header; empty for None. Raises TokenRefusedError."""
    if data is None:
        return NO_CLAIMS
    try:
        claims = json.loads(data) if len(data) <= _CLAIMS_BYTES_MAX else None
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefusedError(reason="its claims can't be read")
    return MappingProxyType(claims)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    if (seconds := claims.get(name)) is None:
        return None
    if type(seconds) not in (int, float) or not 0 <= seconds <= _TIME_MAX:
        raise TokenRefusedError(reason=f"its claim {name!r} is not a time")
    return int(seconds * 1000)


def _refuse(error: jwt.PyJWTError, key_id: str) -> NoReturn:
    """Refuse a token for an error of PyJWT, whose own message may quote the token."""
    match error:
        case jwt.InvalidSignatureError():
            reason = f"it is not signed with key {key_id!r}, or was changed"
        case jwt.MissingRequiredClaimError(claim=claim):
            reason = f"its claim {claim!r} is missing"
        case jwt.InvalidAudienceError():
            reason = "it is for another audience"
        case jwt.InvalidIssuerError():
            reason = "it is of another issuer"
        case _:
            reason = f"malformed ({type(error).__name__})"
    raise TokenRefusedError(reason=reason) from None
