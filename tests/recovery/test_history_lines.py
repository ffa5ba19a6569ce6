"""Lines of history, fence by fence: what a run stands on, and why another one may not go on from a delta.

Random histories: test_histories.py.
"""

from __future__ import annotations

import pytest

from statestore.recovery.fences.history import Abandoned, Behind, Fence, Histories
from statestore.recovery.location.shard_files import Written, new_delta_name


def fence(epoch: int, after: int, of_epoch: int, *, went_back: bool | None = False, run: str = "r") -> Fence:
    """The fence of a run that went on from what the run of another epoch made of a version, 0 for nothing."""
    head = new_delta_name(0, after, of_epoch) if after else ""
    return Fence(epoch, f"{run}{epoch}", after, head=head, went_back=went_back)


FIRST = fence(1, 0, 0)
"""The first run, which makes versions from 1 on."""
SECOND = fence(2, 3, 1)
"""One that goes on from version 3 of the first."""
BACK = fence(3, 1, 1, went_back=True)
"""One that goes back to version 1, and gives up what came after it."""


def test_a_line_has_one_maker_of_each_version() -> None:
    line = Histories([FIRST, SECOND, BACK]).line(2)
    assert [line.holds(Written(version, 1)) for version in (1, 3, 4)] == [True, True, False]
    assert [line.holds(Written(version, 2)) for version in (3, 4, 9)] == [False, True, True]
    assert line.turns == {0, 3}
    current = Histories([FIRST, SECOND, BACK]).current
    assert [current.holds(Written(*made)) for made in ((1, 1), (2, 1), (2, 2), (2, 3))] == [True, False, False, True]
    assert current.holds(Written(0, 0)), "nothing is everybody's"


def test_the_last_version_that_both_lines_have() -> None:
    histories = Histories([FIRST, SECOND, BACK])
    assert histories.line(2).last_shared_version(histories.line(3), 7) == 1
    assert histories.line(2).last_shared_version(histories.line(1), 7) == 3
    assert histories.line(3).last_shared_version(histories.line(3), 7) == 7


def test_proven_is_what_was_built_on() -> None:
    line = Histories([FIRST]).line(1)
    assert line.proven([]) == Written(0, 0)
    assert line.proven([Written(version, 1) for version in (1, 2, 3)]) == Written(2, 1), "the last may be uncommitted"
    assert Histories([FIRST, SECOND]).line(2).proven([]) == Written(3, 1), "a run went on from it"


def test_the_tip_of_the_newest_run_goes_on() -> None:
    made = [Written(version, 1) for version in (1, 2, 3)]
    assert Histories([FIRST]).judge(made[2], made) is None
    assert Histories([FIRST]).judge(made[1], made) is None, "what came last may not have been committed"


def test_who_is_behind_its_own_line_is_told_how_far_it_is() -> None:
    made = [Written(version, 1) for version in (1, 2, 3)]
    assert Histories([FIRST]).judge(made[0], made) == Behind(2, 1)
    assert Histories([FIRST, SECOND]).judge(made[1], made) == Behind(3, 1)


@pytest.mark.parametrize("has_written", [True, False])
def test_a_run_that_went_back_speaks_once_it_has_written(has_written: bool) -> None:
    made = [Written(version, 1) for version in (1, 2, 3)]
    histories = Histories([FIRST, BACK])
    if has_written:
        judged = histories.judge(made[2], [*made, Written(2, 3)])
        assert judged == Abandoned(1, BACK)
    else:
        assert histories.judge(made[2], made) is None


def test_the_run_that_took_over_is_named_not_its_restarts() -> None:
    restart = fence(4, 2, 3)
    judged = Histories([FIRST, BACK, restart]).judge(Written(3, 1), [Written(2, 3), Written(3, 4), Written(4, 4)])
    assert judged == Abandoned(1, BACK)


def test_two_runs_of_one_epoch_say_nothing_unless_they_agree() -> None:
    other = SECOND._replace(run="other", head=new_delta_name(0, 2, 1), from_version=2)
    assert Histories([FIRST, SECOND, other]).fence(2) is None
    assert Histories([FIRST, SECOND, SECOND._replace(run="other")]).fence(2) is not None


def test_the_names_of_deltas_say_which_of_two_runs_of_one_epoch_has_written() -> None:
    idle = fence(2, 4, 1, run="idle")
    histories = Histories([FIRST, SECOND, idle], [new_delta_name(0, 4, 2, SECOND.run)])
    assert histories.fence(2) is SECOND
    made = [*(Written(version, 1) for version in (1, 2, 3, 4)), Written(4, 2)]
    assert histories.judge(Written(4, 2), made) is None
    assert histories.judge(Written(3, 1), made) == Behind(4, 1), "the other one went on from it"
    assert Histories([FIRST, SECOND]).judge(Written(3, 1), made) is None
    unsaid = Histories([FIRST, SECOND, idle], [new_delta_name(0, 4, 2)])
    assert unsaid.fence(2) is None, "as older releases wrote it"


def test_what_is_older_than_a_fence_that_is_gone_is_judged_by_versions() -> None:
    line = Histories([SECOND]).line(2)
    assert line.open_at == 1
    assert [line.holds(Written(*made)) for made in ((3, 1), (2, 0), (4, 1))] == [True, True, False]
    unread = Fence(1, "r1", None)
    assert Histories([unread, SECOND]).line(2).open_at == 1
    unrecorded = Fence(2, "r2", 3)
    assert Histories([FIRST, unrecorded]).line(2).holds(Written(3, 1))
