"""What becomes of headers where records meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.dsl.header_policy import HeaderPolicy

OLD, NEW = Headers([("a", b"1"), ("b", None)]), Headers([("a", b"1"), ("c", b"3")])
HEADERS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=3)), max_size=5).map(Headers)


def merged(policy: HeaderPolicy, old: Headers | None, new: Headers) -> Headers:
    headers, dropped = policy.merge(None if old is None else old.to_bytes(), new.to_bytes())
    assert not dropped
    return Headers.from_bytes(headers)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest", NEW),
        ("first", OLD),
        ("merge_distinct", Headers([("a", b"1"), ("b", None), ("c", b"3")])),
        ("append", Headers([("a", b"1"), ("b", None), ("a", b"1"), ("c", b"3")])),
        ("none", Headers()),
    ],
)
def test_each_policy(policy: str, expected: Headers) -> None:
    assert merged(HeaderPolicy.of(policy), OLD, NEW) == expected
    assert merged(HeaderPolicy.of(policy), None, NEW) == (Headers() if policy == "none" else NEW)


def test_a_function_decides() -> None:
    def newest_of_each_key(old: Headers, new: Headers) -> dict[str, bytes | None]:
        return ({header.key: header.value for header in (*old, *new)}).items()

    policy = HeaderPolicy.of(newest_of_each_key)
    assert merged(policy, Headers([("a", b"0")]), NEW) == Headers([("a", b"1"), ("c", b"3")])
    assert merged(policy, None, NEW) == NEW


def test_what_a_function_returns_has_to_be_headers() -> None:
    with pytest.raises(TypeError):
        HeaderPolicy.of(lambda old, new: 7).merge(None, NEW.to_bytes())


@pytest.mark.parametrize("wrong", ["newest", "a function", ""])
def test_another_name_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"latest, first, merge_distinct, append, none"):
        HeaderPolicy.of(wrong)


@pytest.mark.parametrize("bound", [-1, 1.5, True])
def test_a_bound_is_a_whole_number(bound: object) -> None:
    with pytest.raises(ValueError, match="max_count"):
        HeaderPolicy.of("append").capped(max_count=bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["latest", "first", "merge_distinct", "append", lambda old, new: [*old, *new]])
@given(old=st.none() | HEADERS, new=HEADERS, max_count=st.integers(0, 6), max_bytes=st.integers(0, 40))
def test_what_there_is_no_room_for_is_counted_and_the_first_ones_stay(
    policy: object, old: Headers | None, new: Headers, max_count: int, max_bytes: int
) -> None:
    unbounded = HeaderPolicy.of(policy)  # type: ignore[arg-type]
    bounded = unbounded.capped(max_count=max_count, max_bytes=max_bytes)
    if old is not None:
        old = Headers.from_bytes(bounded.merge(None, old.to_bytes())[0])  # what is there fits
    full = list(merged(unbounded, old, new))
    headers, dropped = bounded.merge(None if old is None else old.to_bytes(), new.to_bytes())
    kept = list(Headers.from_bytes(headers))
    assert kept == full[: len(kept)]
    assert dropped == len(full) - len(kept)
    assert len(kept) <= max_count
    assert len(headers) <= max_bytes
    if dropped and len(kept) < max_count:
        assert len(Headers(full[: len(kept) + 1]).to_bytes()) > max_bytes, "one more would have fitted"
