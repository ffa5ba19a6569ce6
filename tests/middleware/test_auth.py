"""Tokens are checked before anybody sees a record, and a policy is asked."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from statestore import Headers
from statestore.errors import AccessDeniedError, ConfigException, RecordRefusedError, TokenRefusedError
from statestore.errors.middleware import ChainIncompleteError, ChainOrderError, UnknownKeyIdError
from statestore.interception.chain import chain_of
from statestore.middleware import Chain
from statestore.middleware.security.auth import CLAIMS_HEADER, TOKEN_HEADER, Authentication, TokenKey, claims_of
from statestore.middleware.security.authorization import AccessDecision, AccessRequest, Authorization
from statestore.middleware.security.cedar import CedarPolicy
from statestore.middleware.security.keys import HmacKey, Keyring
from statestore.processor.chain_client import ChainClient
from tests.support.passed_records import Clocks, arrived, contents, in_columns, produced, shown, started, through
from tests.support.security_keys import GOOD_CLAIMS, NOW_MS, NOW_S, TOKEN_RING, TOKEN_SECRET, token


def keys_of_the_vault() -> Keyring:
    """Keys of an executor."""
    return TOKEN_RING


def token_of_the_vault() -> str:
    """A token of a service."""
    return token()


def checking(
    keys: Any = TOKEN_RING, algorithms: Any = ("HS256",), now_ms: int = NOW_MS, **options: Any
) -> Authentication:
    made: Authentication = started(Authentication(keys, algorithms=algorithms, **options), Clocks(now_ms))
    return made


def check(checker: Authentication, given: str | bytes | None) -> Any:
    headers = [] if given is None else [(TOKEN_HEADER, given.encode() if isinstance(given, str) else given)]
    (record,) = checker.on_ingest(arrived(produced(headers=headers)))
    return record


def pem_of(private: Any) -> bytes:
    public: bytes = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


PRIVATE = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
PUBLIC = Keyring({name: TokenKey(name, pem_of(private)) for name, private in PRIVATE.items()})


@pytest.mark.parametrize("algorithm", [*PRIVATE, "HS256"])
def test_b18_a_good_token_passes_and_leaves_its_claims(algorithm: str) -> None:
    keys = TOKEN_RING if algorithm == "HS256" else PUBLIC
    given = token() if algorithm == "HS256" else token(PRIVATE[algorithm], algorithm, algorithm)
    record = check(checking(keys, [algorithm], claims=["roles", "absent"]), given)
    assert dict(claims_of(record.headers)) == {"sub": "alice", "roles": ["teller"]}
    assert [header.key for header in record.headers] == [CLAIMS_HEADER], "the token does not stay"
    again = checking(pickle.loads(pickle.dumps(keys)), [algorithm], keep=True)
    assert [header.key for header in check(again, given).headers] == [TOKEN_HEADER, CLAIMS_HEADER]


def test_b18_nobody_forges_claims() -> None:
    forged = (CLAIMS_HEADER, b'{"sub":"root"}')
    lenient = checking(required=False)
    (record,) = lenient.on_ingest(arrived(produced(headers=[forged])))
    assert (claims_of(record.headers), list(record.headers)) == ({}, [])
    (record,) = lenient.on_ingest(arrived(produced(headers=[forged, (TOKEN_HEADER, token().encode()), forged])))
    assert claims_of(record.headers) == {"sub": "alice"}
    assert contents(lenient.on_ingest_columns(in_columns([produced(headers=[forged, ("a", b"")])])))[0][2] == [
        ("a", b"")
    ]
    (sent,) = lenient.on_emit(produced(headers=[forged, ("a", b"")]))
    assert contents([sent])[0][2] == [("a", b"")], "what is known here is nobody's affair elsewhere"


def signed_by_hand(header: dict[str, Any], claims: Any = None, signature: bytes = b"") -> bytes:
    parts = [json.dumps(part).encode() for part in (header, GOOD_CLAIMS if claims is None else claims)]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (*parts, signature))


REFUSED: list[tuple[str, Callable[[Any], str | bytes | None], str]] = [
    ("missing", lambda of_bank: None, "there is no header 'statestore-token'"),
    ("empty", lambda of_bank: b"", "malformed"),
    ("expired", lambda of_bank: of_bank(exp=NOW_S), "has expired, 0 ms ago"),
    ("not yet valid", lambda of_bank: of_bank(nbf=NOW_S + 1), "not valid before 1000 ms from now"),
    ("issued later", lambda of_bank: of_bank(iat=NOW_S + 1), "not valid before"),
    ("no expiry", lambda of_bank: of_bank(exp=None), "claim 'exp' is missing"),
    ("endless", lambda of_bank: of_bank(exp=1e300), "claim 'exp' is not a time"),
    ("no float", lambda of_bank: of_bank(exp=10**400), "claim 'exp' is not a time"),
    ("not a time", lambda of_bank: of_bank(exp="soon"), "claim 'exp' is not a time"),
    ("true", lambda of_bank: of_bank(exp=True), "claim 'exp' is not a time"),
    ("no number", lambda of_bank: of_bank(exp=float("nan")), "claim 'exp' is not a time"),
    ("other audience", lambda of_bank: of_bank(aud="billing"), "another audience"),
    ("no audience", lambda of_bank: of_bank(aud=None), "claim 'aud' is missing"),
    ("other issuer", lambda of_bank: of_bank(iss="mallory"), "another issuer"),
    ("no issuer", lambda of_bank: of_bank(iss=None), "claim 'iss' is missing"),
    ("other secret", lambda of_bank: of_bank(b"x" * 32), "not signed with key 'hs', or was changed"),
    ("none", lambda of_bank: of_bank(None, "none"), "algorithm 'none' is not one of"),
    ("none by hand", lambda of_bank: signed_by_hand({"alg": "none", "kid": "hs"}), "algorithm 'none' is not one of"),
    ("None", lambda of_bank: signed_by_hand({"kid": "hs"}), "algorithm 'None' is not one of"),
    ("not a text", lambda of_bank: signed_by_hand({"alg": {"a": "b" * 99}, "kid": "hs"}), "algorithm .* is not one of"),
    ("not allowed", lambda of_bank: of_bank(b"s" * 64, "HS512"), "algorithm 'HS512' is not one of"),
    ("of another kind", lambda of_bank: of_bank(kid="RS256"), "algorithm 'HS256' is not that of key 'RS256'"),
    ("unsigned", lambda of_bank: signed_by_hand({"alg": "HS256", "kid": "hs"}), "not signed with key"),
    (
        "detached",
        lambda of_bank: signed_by_hand({"alg": "HS256", "kid": "hs", "b64": False, "crit": ["b64"]}),
        "malformed",
    ),
    ("critical", lambda of_bank: signed_by_hand({"alg": "HS256", "kid": "hs", "crit": ["x"], "x": 1}), "malformed"),
    ("no key id", lambda of_bank: of_bank(kid=None), "names no key"),
    ("long key id", lambda of_bank: of_bank(kid="k" * 256), "names no key"),
    ("bytes", lambda of_bank: b"\xff\x00.\xff.\xff", "malformed"),
    ("one dot", lambda of_bank: b"a.b", "malformed"),
    ("not JSON", lambda of_bank: b"e30.e30.e30", "algorithm|malformed"),
    ("deep", lambda of_bank: base64.urlsafe_b64encode(b"[" * 4000).rstrip(b"=") + b".e30.e30", "malformed"),
    ("large", lambda of_bank: of_bank(pad="x" * 9000), "has .* bytes, and 8192 are allowed"),
    ("large claims", lambda of_bank: of_bank(roles=["x" * 5000]), "claims take .* bytes, and 4096 are allowed"),
    ("subject", lambda of_bank: of_bank(sub=7), "malformed"),
]


@pytest.mark.parametrize(("make", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_b18_each_bad_token_is_refused_with_its_reason(make: Callable[[Any], Any], reason: str) -> None:
    ring = Keyring({**TOKEN_RING, "RS256": PUBLIC["RS256"]})
    strict = checking(ring, ["HS256", "RS256"], issuer="bank", audience="orders", claims=["roles"], audit_topic="audit")
    of_bank = partial(token, iss="bank", aud="orders")
    check(strict, of_bank())
    with pytest.raises(TokenRefusedError, match=reason) as raised:
        check(strict, make(of_bank))
    assert raised.value.audit_topic == "audit"


def test_a_public_key_is_no_secret() -> None:
    public = pem_of(PRIVATE["RS256"])
    header, claims, _ = signed_by_hand({"alg": "HS256", "kid": "RS256"}).split(b".")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(header + b"." + claims, public)
    forged = b".".join((header, claims, base64.urlsafe_b64encode(signature).rstrip(b"=")))
    with pytest.raises(TokenRefusedError, match="not that of key"):
        check(checking(PUBLIC, ["RS256", "HS256"]), forged)
    with pytest.raises(ValueError, match="can't be used for HS256"):
        TokenKey("HS256", public)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("none", TOKEN_SECRET),
        ("HS256", b"short"),
        ("HS999", TOKEN_SECRET),
        ("RS256", b"-----BEGIN"),
        ("ES256", TOKEN_SECRET),
    ],
)
def test_a_key_that_can_not_be_used_is_refused_at_once(algorithm: str, key: bytes) -> None:
    with pytest.raises(ValueError, match=r"algorithm of a TokenKey|can't be used") as raised:
        TokenKey(algorithm, key)
    assert "short" not in shown(raised.value)


def test_keys_rotate_and_unknown_ones_are_refused() -> None:
    ring = Keyring({"hs": TokenKey("HS256", TOKEN_SECRET), "2": TokenKey("HS256", b"n" * 32)})
    assert check(checking(ring), token(b"n" * 32, kid="2"))
    with pytest.raises(UnknownKeyIdError, match="token: the keyring has no key '3'"):
        check(checking(ring), token(kid="3"))
    with pytest.raises(UnknownKeyIdError):
        check(checking(Keyring({"hs": HmacKey(TOKEN_SECRET)})), token())
    assert check(checking(TOKEN_RING), token(kid=None)), "the only key there is"
    with pytest.raises(TokenRefusedError, match="names no key"):
        check(checking(ring), token(kid=None))


def test_expiry_is_asked_for_each_record_and_the_signature_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = Authentication(TOKEN_RING, algorithms=["HS256"], leeway_ms=5000)
    given, verified = token(), []
    decode = jwt.PyJWT.decode
    monkeypatch.setattr(jwt.PyJWT, "decode", lambda self, *a, **k: verified.append(1) or decode(self, *a, **k))
    for at_ms in (NOW_MS, NOW_MS + 60_000, NOW_MS + 64_999):
        batch = started(copy.copy(checker), Clocks(at_ms))
        for _ in range(3):
            assert check(batch, given)
    with pytest.raises(TokenRefusedError, match="expired, 5000 ms ago"):
        check(started(copy.copy(checker), Clocks(NOW_MS + 65_000)), given)
    assert len(verified) == 1


def test_a_key_that_was_taken_away_ends_what_was_remembered() -> None:
    rings = [TOKEN_RING, Keyring(dict(TOKEN_RING)), Keyring({"2": TokenKey("HS256", b"n" * 32)})]
    checker = Authentication(lambda: rings.pop(0), algorithms=["HS256"])
    for _ in range(2):
        check(started(checker, Clocks(NOW_MS)), token())
    with pytest.raises(UnknownKeyIdError):
        check(started(checker, Clocks(NOW_MS)), token())


def test_so_many_tokens_are_remembered_and_no_more() -> None:
    checker = checking(cache_size=2)
    for number in range(5):
        check(checker, token(jti=str(number)))
    assert "2 tokens" in repr(checker._verified)
    assert "0 tokens" in repr(pickle.loads(pickle.dumps(checker._verified)))


def test_columns_are_checked_as_records_are() -> None:
    tokens = [token(), token(sub="bob"), token(), None]
    records = [
        produced(b"%d" % n, b"v", [("a", b"1"), *([(TOKEN_HEADER, t.encode())] if t else [])])
        for n, t in enumerate(tokens)
    ]
    for options in ({"required": False}, {"required": False, "keep": True}):
        one_by_one = [made for record in records for made in checking(**options).on_ingest(arrived(record))]
        assert contents(checking(**options).on_ingest_columns(in_columns(records))) == contents(one_by_one)
    with pytest.raises(TokenRefusedError):
        checking().on_ingest_columns(in_columns(records))
    assert contents(checking().on_ingest_columns(in_columns([]))) == []
    attaching = Authentication(token="t")
    expected = [made for record in records for made in attaching.on_emit(record.copy())]
    assert contents(attaching.on_emit_columns(in_columns(records))) == contents(expected)


def test_a_token_is_put_on_what_is_emitted() -> None:
    for given in (token(), token_of_the_vault):
        sender = Authentication(token=given)
        assert claims_of(through(sender, produced(headers=[(TOKEN_HEADER, b"old")]), checking()).headers) == {
            "sub": "alice"
        }
        assert contents([through(sender, produced(), sender)])[0][2] == [(TOKEN_HEADER, token().encode())]
    with pytest.raises(TypeError, match="must return a str"):
        Chain([Authentication(token=lambda: b"x")]).emit(produced())  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"[" * 4000, b'{"a":"' + b"x" * 5000 + b'"}'], ids=len)
def test_claims_that_nobody_verified_may_be_anything(data: bytes) -> None:
    with pytest.raises(TokenRefusedError, match="claims can't be read"):
        claims_of(Headers([(CLAIMS_HEADER, data)]))
    assert claims_of(Headers([(CLAIMS_HEADER, None)])) == {}


@pytest.mark.parametrize(
    "wrong",
    [{}, {"keys": TOKEN_RING}, {"keys": TOKEN_RING, "algorithms": ["none"]}, {"token": "t", "header": CLAIMS_HEADER}]
    + [{"token": "t", name: -1} for name in ("leeway_ms", "max_bytes", "cache_size")],
    ids=str,
)
def test_what_makes_no_sense_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keys|algorithms|header|must be"):
        Authentication(**wrong)
    with pytest.raises(TypeError):
        Authentication(TOKEN_RING, algorithms="HS256")


# ---- policies ----


def tellers_only(request: AccessRequest) -> bool:
    """A policy."""
    return "teller" in request.claims["roles"]


def asked(policy: Any, given: str | None = None, **options: Any) -> Any:
    chain = Chain([Authorization(policy, **options), checking(required=False, claims=["roles"])])
    headers = [("a", b"1"), (TOKEN_HEADER, (given or token()).encode())]
    return chain.ingest(arrived(produced(headers=headers)))


def test_b18_what_the_policy_allows_passes() -> None:
    requests: list[AccessRequest] = []
    for answer in (True, AccessDecision(True)):
        (record,) = asked(lambda request, answer=answer: requests.append(request) or answer)
    assert [header.key for header in record.headers] == ["a", CLAIMS_HEADER]
    request = requests[0]
    assert (request.principal, request.action, request.topic, request.key) == ("alice", "write", "orders", b"k")
    assert request.claims["roles"] == ["teller"]
    assert TOKEN_HEADER not in request.headers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the policy denies it"),
        (None, "answered with NoneType"),
        (1, "answered with int"),
        ("yes", "answered with str"),
        (AccessDecision(False, "not on sundays"), "not on sundays"),
        (AccessDecision(False), "the policy denies it"),
        (AccessDecision("no"), "the policy denies it"),  # type: ignore[arg-type]
    ],
)
def test_b18_everything_else_is_denied(answer: Any, reason: str) -> None:
    with pytest.raises(AccessDeniedError, match=f"'alice' may not write to topic 'orders': .*{reason}") as raised:
        asked(lambda request: answer, audit_topic="audit")
    assert (raised.value.audit_topic, raised.value.principal) == ("audit", "alice")
    columns = checking(claims=["roles"]).on_ingest_columns(
        in_columns([produced(headers=[(TOKEN_HEADER, token().encode())])])
    )
    with pytest.raises(AccessDeniedError, match=reason):
        Authorization(lambda request: answer).on_ingest_columns(columns)
    assert Authorization(tellers_only).on_ingest_columns(columns) is columns


def test_b18_a_policy_that_fails_denies() -> None:
    with pytest.raises(AccessDeniedError, match="the policy failed: KeyError") as raised:
        asked(tellers_only, token(roles=None))
    assert isinstance(raised.value.__cause__, KeyError)

    def refuse(request: AccessRequest) -> bool:
        raise RecordRefusedError("in its own words")

    with pytest.raises(RecordRefusedError, match=r"^in its own words \("):
        asked(refuse)


def test_who_a_record_is_of_is_known_before_a_policy_is_asked() -> None:
    with pytest.raises(ChainOrderError, match="has to be known before a policy is asked"):
        Chain([checking(), Authorization(tellers_only)])
    with pytest.raises(TypeError, match="policy must be a function"):
        Authorization("allow")  # type: ignore[arg-type]


def test_b18_claims_that_nobody_has_checked_are_not_asked_about() -> None:
    forged = arrived(produced(headers=[(CLAIMS_HEADER, b'{"sub":"root"}')]))
    by_claims = Authorization(lambda request: request.principal == "root")
    for run in (lambda: chain_of([by_claims]).complete(), lambda: ChainClient([by_claims])):
        with pytest.raises(ChainIncompleteError, match="'authorization' needs 'token' behind it") as raised:
            run()
        assert raised.value.missing == "token"
    by_topic = Authorization(lambda request: request.principal is None, authenticated=False)
    with ChainClient([by_topic]) as client:
        assert client.ingest(forged)
    only_emits = Authentication(token="t")
    with ChainClient([by_claims, only_emits]) as client, pytest.raises(AccessDeniedError, match="None may not write"):
        client.ingest(forged)


POLICIES = """
@id("tellers write orders")
permit(principal, action == Action::"write", resource == Topic::"orders")
when { context.claims.roles.contains("teller") };
@id("no tests")
forbid(principal, action, resource) when { context.headers has "test" && context.headers.test == "yes" };
@id("no bosses")
forbid(principal, action, resource) when { context.claims has boss && context.claims.boss == User::"root" };
@id("managers")
permit(principal in Group::"managers", action, resource);
"""
BOB = [{"uid": {"type": "User", "id": "bob"}, "attrs": {}, "parents": [{"type": "Group", "id": "managers"}]}]


@pytest.mark.parametrize(
    ("claims", "headers", "reason"),
    [
        ({"sub": "alice", "roles": ["teller"]}, [], None),
        ({"sub": "alice", "roles": ["cook"]}, [], "no policy permits it"),
        ({"sub": "alice", "roles": ["teller"]}, [("test", b"yes")], "forbidden by no tests"),
        ({"sub": "alice", "roles": ["teller"]}, [("test", b"\xff")], "header 'test' is not text"),
        ({"sub": "alice", "roles": ["teller"]}, [("test", None)], "header 'test' is not text"),
        ({"sub": "alice", "roles": ["teller"]}, [("test", b"x" * 2000)], "too long"),
        ({"sub": "alice"}, [], "could not be evaluated: policy0"),
        ({"sub": "bob", "roles": []}, [], None),
        ({"sub": "bob", "boss": {"__entity": {"type": "User", "id": "root"}}, "roles": []}, [], None),
        ({"roles": ["teller"]}, [], "no principal"),
        ({"sub": 'al"ice\n', "roles": ["teller"], "x": None, "y": 1.5, "z": 2**70, "__entity": {}}, [], None),
    ],
)
def test_b18_cedar_decides(claims: dict[str, Any], headers: Any, reason: str | None) -> None:
    policy = pickle.loads(pickle.dumps(CedarPolicy(POLICIES, entities=BOB, headers=["test"])))
    request = AccessRequest(claims, "write", "orders", b"k", Headers(headers))
    for _ in range(2):
        decision = policy(request)
        assert decision.allowed is (reason is None), decision
        assert reason is None or reason in decision.reason


def test_cedar_is_asked_once_about_the_same_and_reads_its_policies_at_once() -> None:
    policy = CedarPolicy(POLICIES, cache_size=2)
    for number in range(4):
        policy(AccessRequest({"sub": str(number), "roles": []}, "write", "orders", None, Headers()))
    assert len(policy._decisions) == 2
    assert repr(policy) == f"CedarPolicy({len(POLICIES)} characters)"
    with pytest.raises(ValueError, match="unexpected"):
        CedarPolicy("permit(")
    with pytest.raises(TypeError):
        CedarPolicy(POLICIES, headers="test")


def test_it_is_made_by_a_configuration_and_travels() -> None:
    config = {
        "statestore.token.keys": f"{__name__}:keys_of_the_vault",
        "statestore.token.algorithms": "HS256",
        "statestore.token.claims": "roles",
        "statestore.token.token": f"{__name__}:token_of_the_vault",
        "statestore.authorization.policy": f"{__name__}:tellers_only",
        "statestore.authorization.audit.topic": "audit",
    }
    authentication = Authentication.from_config(config)
    again = started(pickle.loads(pickle.dumps(authentication)), Clocks(NOW_MS))
    chain = Chain([Authorization.from_config(config), again])
    (sent,) = chain.emit(produced())
    assert claims_of(chain.ingest(arrived(sent))[0].headers)["roles"] == ["teller"]
    assert repr(authentication) == "Authentication(keys_of_the_vault, algorithms=['HS256'])"
    for wrong in ({**config, "statestore.token.leeway.ms": "-1"}, {**config, "statestore.token.algorithms": "none"}):
        with pytest.raises(ConfigException):
            Authentication.from_config(wrong)
    with pytest.raises(ConfigException):
        Authorization.from_config({})
