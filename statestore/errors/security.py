"""Errors of signatures, ciphertexts, tokens and policies. None holds a key, a token, or what was encrypted."""

from __future__ import annotations

from statestore.errors.middleware import MiddlewareError, RecordRefusedError
from statestore.errors.root import text


class KeyUnusableError(MiddlewareError):
    """The keyring has no active key, or one that can't do what it is for; nothing was signed or encrypted."""

    purpose: str
    problem: str
    message: str = text("{purpose}: {problem}")


class UnknownKeyIdError(RecordRefusedError):
    """A record names a key that the keyring does not have; `purpose` says what for."""

    purpose: str
    key_id: str
    problem: str = text(
        "{purpose}: the keyring has no key {key_id!r}. If it is one of yours, add it to the keyring, old keys too as "
        "long as there are records of them; else the record is forged"
    )


class SignatureRefusedError(RecordRefusedError):
    """A record's signature is missing, malformed, too old, seen before, or not that of this record."""

    reason: str
    problem: str = text("the signature is refused: {reason}")


class CiphertextRefusedError(RecordRefusedError):
    """A value or header that was to be decrypted is not encrypted, malformed, or was changed."""

    what: str
    reason: str
    problem: str = text("{what} can't be decrypted: {reason}")


class TokenRefusedError(RecordRefusedError):
    """A record's token is missing, malformed, too large, expired, or not for us."""

    reason: str
    problem: str = text("the token is refused: {reason}")


class AccessDeniedError(RecordRefusedError):
    """The policy denies a record; `principal` is who its token is of, None for nobody."""

    principal: str | None
    action: str
    topic: str
    reason: str
    problem: str = text("{principal!r} may not {action} to topic {topic!r}: {reason}")
