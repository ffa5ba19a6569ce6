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
    """What a policy is asked: may whoever these claims are of do this?"""

    claims: Mapping[str, Any]
    """What Authentication kept of the token; empty without one. Not to be changed."""
    action: str
    topic: str
    """The topic that the record came from."""
    key: bytes | None
    headers: Headers
    """The record's, without its token. Not to be changed."""

    @property
    def principal(self) -> str | None:
        """Who the token is of, its claim `sub`; None for nobody."""
        found = self.claims.get("sub")
        return found if isinstance(found, str) else None


@dataclass(frozen=True)
class AccessDecision:
    """What a policy says, and why: the reason stands in the dead letter."""

    allowed: bool
    reason: str = ""


Policy: TypeAlias = Callable[[AccessRequest], "bool | AccessDecision"]
"""A function of a request that says whether it is allowed. It travels to the executors.

Which headers it looks at may stand in its attribute `goes_by`: signing behind it has to sign them then.
"""
_REASON_MAX: Final = 500


class Authorization(Application):
    """Asks a policy about each record that is ingested, and refuses those that it does not allow.

    Anything but True, or a decision that allows, is a denial. So is whatever the policy raises: the reason names its
    class. A RecordRefusedError of its own passes as it is.

    Args:
        policy: a function of an AccessRequest.
        authenticated: whether it is asked about claims, which something of kind "token" behind it has to have checked:
            without, anybody could have written them. False is for policies that look at other headers and topics only.
        audit_topic: where refused records go instead of the query's dead letters, as they came.
        action: what records do, for the policy.
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
