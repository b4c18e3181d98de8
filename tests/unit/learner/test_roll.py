"""Who of several processes lives: signed in files, each life under its own number."""

import os
import subprocess
import sys

import pytest

from spreeze_zmq.learner.roll import Life, Roll


@pytest.fixture
def rolls(tmp_path):
    """Two processes of one role; both are this one, in different lives."""
    made = [Roll(tmp_path, "learner", 2, index, Life(index + 1, os.getpid()), 5.0) for index in range(2)]
    made[0].enter()
    return made


def test_the_roll_is_complete_when_all_have_entered(rolls):
    """Until then somebody is missing."""
    assert rolls[0].lives() == [Life(1, os.getpid()), None]
    rolls[1].enter()
    assert rolls[0].lives() == rolls[1].lives() == [Life(1, os.getpid()), Life(2, os.getpid())]


def test_a_second_life_makes_the_first_one_lost(rolls, tmp_path):
    """Whoever knew the first one hears it by name."""
    rolls[1].enter()
    members = rolls[0].lives()
    assert rolls[0].lost(members) == ""
    Roll(tmp_path, "learner", 2, 1, Life(3, os.getpid()), 5.0).enter()
    assert rolls[0].lost(members) == "learner-1 has begun anew"


def test_a_process_that_has_died_is_lost_also_unreaped(rolls, tmp_path):
    """A zombie is no learner."""
    died = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, died.pid, os.WEXITED | os.WNOWAIT)
    Roll(tmp_path, "learner", 2, 1, Life(2, died.pid), 5.0).enter()
    assert rolls[0].lost(rolls[0].lives()) == f"learner-1 (process {died.pid}) is gone"
    died.wait()
    assert rolls[0].lost(rolls[0].lives()) == f"learner-1 (process {died.pid}) is gone"


def test_whoever_does_not_sign_is_named(rolls, tmp_path):
    """After its time; one that has signed just now is not."""
    rolls[1].enter()
    assert rolls[0].silent() == ("", 0.0)
    path = tmp_path / "learner-1.life"
    long_ago_s = path.stat().st_mtime - 60
    os.utime(path, (long_ago_s, long_ago_s))
    name, silent_s = rolls[0].silent()
    assert name == "learner-1"
    assert silent_s > 55
    rolls[1].sign()
    assert rolls[0].silent() == ("", 0.0)
