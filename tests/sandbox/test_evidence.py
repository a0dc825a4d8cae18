"""The order in which endings are judged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.sandbox.base import Ending
from wmrl_cli.sandbox.evidence import Evidence, Stop, ending_of

EVIDENCE = st.builds(
    Evidence,
    failure=st.sampled_from(["", "the engine died"]),
    stop=st.sampled_from([None, *Stop]),
    exit_code=st.sampled_from([None, 0, 1, 137, 152]),
    cpu_s=st.sampled_from([None, 0.1, 5.0]),
    cpu_limit_s=st.sampled_from([None, 4.0]),
    oom_kills=st.integers(0, 2),
    refused_processes=st.integers(0, 2),
)


@given(EVIDENCE)
def test_our_failure_comes_first_and_is_never_the_scripts(seen):
    assert (ending_of(seen)[0] is Ending.LOST) == bool(seen.failure or (seen.stop is None and seen.exit_code is None))


@given(EVIDENCE)
def test_exit_code_0_without_a_stop_is_an_exit_whatever_else_was_seen(seen):
    if not seen.failure and seen.stop is None and seen.exit_code == 0:
        assert ending_of(seen) == (Ending.EXITED, "")


@given(EVIDENCE)
def test_whatever_did_not_exit_well_says_why(seen):
    ending, words = ending_of(seen)
    assert bool(words) == (ending is not Ending.EXITED)


def test_the_order_by_hand():
    def judged(**seen):
        return ending_of(Evidence(**seen))[0]

    assert judged(stop=Stop.CANCEL, exit_code=137) is Ending.CANCELLED
    assert judged(stop=Stop.WALL, exit_code=137, oom_kills=1) is Ending.TIMEOUT
    assert judged(exit_code=152, cpu_s=4.0, cpu_limit_s=4.0) is Ending.TIMEOUT
    assert judged(exit_code=152, cpu_s=0.1, cpu_limit_s=4.0) is Ending.FAILED  # an exit code alone proves nothing
    assert judged(stop=Stop.DISK, exit_code=137, oom_kills=1) is Ending.RESOURCE_LIMIT
    assert judged(exit_code=1, oom_kills=1, refused_processes=1) is Ending.OUT_OF_MEMORY
    assert judged(exit_code=0, oom_kills=1) is Ending.EXITED  # a child was killed, the script carried on
    assert judged(exit_code=137) is Ending.FAILED
    assert judged(exit_code=1, refused_processes=3) is Ending.RESOURCE_LIMIT


def test_the_signal_is_read_from_the_exit_code():
    assert Evidence(exit_code=137).signal == 9
    assert Evidence(exit_code=1).signal is None and Evidence(exit_code=None).signal is None
