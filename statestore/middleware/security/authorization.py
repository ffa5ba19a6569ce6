"""`Authorization` asks a policy about each record: may its principal write it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from statestore.errors import AccessDeniedError, RecordRefusedError
from statestore.format.binary_columns import row_objects
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import IngestedRecord
from statestore.middleware.application import Application, options
from statestore.middleware.security.auth import CLAIMS_HEADER, NO_CLAIMS, claims_of, read_claims

__all__ = ["AccessDecision", "AccessRequest", "Authorization"]


@dataclass(frozen=True)
class AccessRequest:
    """The question to a policy: may the subject of these claims do this?"""

    claims: Mapping[str, Any]
    """The claims that Authentication kept; empty without a token. Don't change them."""
    action: str
    topic: str
    """The topic that the record came from."""
    key: bytes | None
    headers: Headers
    """The record's headers, without its token unless Authentication keeps that. Don't change them."""

    @property
    def principal(self) -> str | None:
        """The token's subject, its claim `sub`; None if that is missing or not text."""
        found = self.claims.get("sub")
        return found if isinstance(found, str) else None


@dataclass(frozen=True)
class AccessDecision:
    """A policy's answer, and the reason, which goes into the dead letter."""

    allowed: bool
    reason: str = ""


Policy: TypeAlias = Callable[[AccessRequest], "bool | AccessDecision"]
"""Says whether a request is allowed. It is pickled for the executors.

Its attribute `goes_by` may name the headers that it looks at: signing behind it must then sign those.
"""
_REASON_MAX: Final = 500


class Authorization(Application):
    """Asks a policy about each ingested record, and refuses those that it does not allow.

    Only True, or a decision that allows, lets a record in. An exception of the policy is a denial that names its class;
    a RecordRefusedError passes as it is.

    Args:
        policy: a function of an AccessRequest that returns a bool or an AccessDecision.
        authenticated: whether the policy sees claims. An interceptor of kind "token" behind this one must check them:
            else anybody could have written them. False is for policies that look at other headers and topics only.
        audit_topic: where refused records go, as they came, instead of the query's dead letters.
        action: the `action` of each request.
    """

    kind = "authorization"
    _options = options(CLASS="policy!", STRING="audit.topic action", BOOLEAN="authenticated")
    needs: ClassVar[Mapping[str, str]] = {
        "token": "claims that nobody has checked are those that anybody has written. If the policy does not look at "
        "them, say authenticated=False"
    }

    def __init__(
        self, policy: Policy, *, authenticated: bool = True, audit_topic: str | None = None, action: str = "write"
    ) -> None:
        """Raise TypeError for a policy that can't be called."""
        if not callable(policy):
            raise TypeError(f"policy must be a function of an AccessRequest, not {type(policy).__name__}")
        if not authenticated:
            self.needs = {}  # type: ignore[misc]
        self._policy: Final = policy
        self.goes_by = ("*", *getattr(policy, "goes_by", ()))
        self._authenticated: Final = authenticated
        self._audit_topic: Final = audit_topic
        self._action: Final = action

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Ask about a record. Raises AccessDeniedError."""
        self._check(claims_of(record.headers), record.topic, record.key, record.headers)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Ask about each record."""
        columns = (records.header(CLAIMS_HEADER), records.topic, records.key, records.headers)
        for claims, topic, key, headers in zip(*map(row_objects, columns), strict=True):
            self._check(read_claims(claims), topic, key, Headers.from_bytes(headers))
        return records

    def _check(self, claims: Mapping[str, Any], topic: str, key: bytes | None, headers: Headers) -> None:
        request = AccessRequest(claims if self._authenticated else NO_CLAIMS, self._action, topic, key, headers)
        try:
            decision = self._policy(request)
        except RecordRefusedError:
            raise
        except Exception as cause:
            raise self._denied(request, f"the policy failed: {type(cause).__name__}") from cause
        if isinstance(decision, AccessDecision):
            if decision.allowed is not True:
                raise self._denied(request, decision.reason or "the policy denies it")
        elif decision is not True:
            why = "denies it" if decision is False else f"answered with {type(decision).__name__}, not with a bool"
            raise self._denied(request, f"the policy {why}")

    def _denied(self, request: AccessRequest, reason: str) -> AccessDeniedError:
        principal = None if request.principal is None else request.principal[:_REASON_MAX]
        return AccessDeniedError(
            principal=principal,
            action=request.action,
            topic=request.topic,
            reason=reason[:_REASON_MAX],
            audit_topic=self._audit_topic,
        )
