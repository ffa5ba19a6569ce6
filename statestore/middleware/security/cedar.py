"""Policies for `Authorization` in the language Cedar: a text, not code, says who may write what.

Cedar is asked about the principal `User::` and the token's claim `sub`, the action `Action::"write"` and the resource
`Topic::` and the topic's name; `context.claims` has the claims that Authentication kept, `context.headers` the chosen
headers as text. Source: cedarpy, Cedar's own engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from statestore.connect.recently_used import RecentlyUsed
from statestore.headers.record_headers import Headers
from statestore.middleware.application import extra, value_of
from statestore.middleware.security.authorization import AccessDecision, AccessRequest

with extra("cedar"):
    import cedarpy

__all__ = ["CedarPolicy"]

_LONG: Final = range(-(2**63), 2**63)
_POLICY_OF_ERROR: Final = re.compile(r"policy `([^`]{1,80})`")
_HEADER_BYTES_MAX: Final = 1 << 10


class CedarPolicy:
    """A policy for Authorization that asks Cedar.

    It denies records without a principal, what no policy permits, and requests for which a policy can't be evaluated:
    Cedar itself would skip such a policy, even a `forbid`.

    Args:
        policies: the text of all policies. Reasons name them by their annotation `@id`.
        entities: other entities, such as groups of users, as a list or as JSON.
        headers: the headers that policies see as text in `context.headers`; a record is denied if one of them is not
            UTF-8, or longer than 1024 bytes.
        principal_type: the entity type of principals.
        action_type: the entity type of actions.
        resource_type: the entity type of resources.
        cache_size: how many decisions are remembered, those used last.
    """

    def __init__(
        self,
        policies: str,
        *,
        entities: str | Sequence[Mapping[str, Any]] = (),
        headers: Sequence[str] = (),
        principal_type: str = "User",
        action_type: str = "Action",
        resource_type: str = "Topic",
        cache_size: int = 1000,
    ) -> None:
        """Raise ValueError for policies that can't be parsed, TypeError for one text instead of names."""
        if isinstance(headers, str):
            raise TypeError("headers are names in a list, not one text")
        self._given: Final[dict[str, Any]] = dict(
            policies=policies,
            entities=entities if isinstance(entities, str) else list(entities),
            headers=tuple(headers),
            principal_type=principal_type,
            action_type=action_type,
            resource_type=resource_type,
            cache_size=cache_size,
        )
        self.goes_by: Final = tuple(headers)
        """The headers that policies look at."""
        self._policies: Final = cedarpy.PolicySet.from_str(policies)
        self._decisions: Final = RecentlyUsed(cache_size)

    def __call__(self, request: AccessRequest) -> AccessDecision:
        """Return Cedar's decision, with the policies that decided."""
        if (principal := request.principal) is None:
            return AccessDecision(False, "the record has no principal: it has no token, or a token without sub")
        given = self._given
        headers = {name: _text(request.headers, name) for name in given["headers"] if name in request.headers}
        if unreadable := sorted(name for name, text in headers.items() if text is None):
            return AccessDecision(False, f"header {unreadable[0]!r} is not text, or too long")
        asked = {
            "principal": {"type": given["principal_type"], "id": principal},
            "action": {"type": given["action_type"], "id": request.action},
            "resource": {"type": given["resource_type"], "id": request.topic},
            "context": {"claims": _record(request.claims), "headers": headers},
        }
        decision: AccessDecision = self._decisions.get(repr(asked), lambda: self._ask(asked))
        return decision

    def _ask(self, asked: dict[str, Any]) -> AccessDecision:
        answer = cedarpy.is_authorized(asked, self._policies, self._given["entities"])
        diagnostics = answer.diagnostics
        if diagnostics.errors:
            failed = sorted({name for error in diagnostics.errors for name in _POLICY_OF_ERROR.findall(error)})
            return AccessDecision(False, f"policies could not be evaluated: {', '.join(failed) or 'the request'}")
        ids = diagnostics.id_annotations_by_reason
        named = ", ".join(sorted(ids.get(reason) or reason for reason in diagnostics.reasons))
        if answer.allowed:
            return AccessDecision(True, named)
        return AccessDecision(False, f"forbidden by {named}" if named else "no policy permits it")

    def __repr__(self) -> str:
        return f"CedarPolicy({len(self._given['policies'])} characters)"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(CedarPolicy, **self._given), ()


def _record(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of JSON that Cedar knows: no null, no fractions, no names that Cedar reserves for entities."""
    kept = {name: _value(value) for name, value in values.items() if not name.startswith("__")}
    return {name: value for name, value in kept.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, bool | str) or (isinstance(value, int) and value in _LONG):
        return value
    if isinstance(value, list):
        return [kept for kept in map(_value, value) if kept is not None]
    return _record(value) if isinstance(value, Mapping) else None


def _text(headers: Headers, name: str) -> str | None:
    """Return the last header of a name as text; None if there is none, or it is longer than 1024 bytes."""
    value = value_of(headers, name)
    if value is None or len(value) > _HEADER_BYTES_MAX:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
