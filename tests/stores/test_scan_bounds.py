"""The bound of a scan up to a key whose beginnings, followed by a time, may sort behind it."""

import time

from hypothesis import given
from hypothesis import strategies as st

from statestore.stores.segment_columns import upper_bound

PARTS = st.lists(st.sampled_from([b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"]), max_size=24).map(b"".join)


@given(PARTS, st.integers(0, 2**63 - 1), st.sampled_from([b"\x7f\xff\xff\xff", b"\x7f" + b"\xff" * 7]))
def test_it_is_the_greatest_of_all_beginnings(key: bytes, time_ms: int, rest: bytes) -> None:
    suffix = time_ms.to_bytes(8, "big") + rest
    assert upper_bound(key, suffix) == max(key[:length] + suffix for length in range(len(key) + 1))


def test_a_huge_key_is_gone_through_once() -> None:
    began_s = time.process_time()
    assert upper_bound(b"a" * 200_000, b"\x7f" + b"\xff" * 15) == b"\x7f" + b"\xff" * 15
    assert time.process_time() - began_s < 0.5
