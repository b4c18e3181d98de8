"""Presence of the processes of one role: each registers in a file and touches it."""

import os
import subprocess
import sys

import pytest

from spreeze_zmq.learner.presence import Member, Presence


@pytest.fixture
def both(tmp_path):
    """Two processes of one role, of which the first has registered; both have this process's id."""
    made = [
        Presence(tmp_path, "learner", 2, index, Member(index + 1, os.getpid()), 5.0) for index in range(2)
    ]
    made[0].register()
    return made


def test_all_members_are_known_when_all_have_registered(both):
    """Until then one is missing."""
    assert both[0].members() == [Member(1, os.getpid()), None]
    both[1].register()
    assert both[0].members() == both[1].members() == [Member(1, os.getpid()), Member(2, os.getpid())]


def test_a_restarted_process_is_lost_as_the_former_member(both, tmp_path):
    """The message has its name."""
    both[1].register()
    members = both[0].members()
    assert both[0].lost(members) == ""
    Presence(tmp_path, "learner", 2, 1, Member(3, os.getpid()), 5.0).register()
    assert both[0].lost(members) == "learner-1 has been restarted"


def test_a_process_that_has_died_is_lost_also_unreaped(both, tmp_path):
    """A zombie is no learner."""
    died = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, died.pid, os.WEXITED | os.WNOWAIT)
    Presence(tmp_path, "learner", 2, 1, Member(2, died.pid), 5.0).register()
    assert both[0].lost(both[0].members()) == f"learner-1 (process {died.pid}) is gone"
    died.wait()
    assert both[0].lost(both[0].members()) == f"learner-1 (process {died.pid}) is gone"


def test_a_silent_process_is_named(both, tmp_path):
    """After its timeout; not one that has touched its file just now."""
    both[1].register()
    assert both[0].silent() == ("", 0.0)
    path = tmp_path / "learner-1.life"
    long_ago_s = path.stat().st_mtime - 60
    os.utime(path, (long_ago_s, long_ago_s))
    name, silent_s = both[0].silent()
    assert name == "learner-1"
    assert silent_s > 55
    both[1].touch()
    assert both[0].silent() == ("", 0.0)
