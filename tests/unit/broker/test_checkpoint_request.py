"""A checkpoint that is asked for is complete once the parts of all learners are on the disk."""

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.checkpoint_request import CheckpointRequest
from spreeze_zmq.run.checkpoint import complete, latest, write_part

#: Eleven and a half days, in seconds: then milliseconds have ten digits.
LONG_S = 1e6
PARTS = {"critic_learner.pt": b"critic" * 1000, "actor_learner.pt": b"actor" * 1000}


def test_a_request_names_the_learners_that_owe_their_parts(tmp_path):
    """Also one whose part is not as it says, until all are there."""
    request = CheckpointRequest(tmp_path, ("critic_learner", "actor_learner"), 60.0)
    assert request.missing == []
    folder = request.begin(512, 3.0)
    assert request.missing == ["critic_learner", "actor_learner"]
    parts = {
        name.partition(".")[0]: write_part(tmp_path / folder, name, lambda path, d=data: path.write_bytes(d))
        for name, data in PARTS.items()
    }
    fields = {role: {"folder": folder, "part": {"file": part.to_dict()}} for role, part in parts.items()}
    request.take("critic_learner", fields["critic_learner"], {})
    assert request.missing == ["actor_learner"]
    torn = {**fields["actor_learner"]["part"]["file"], "bytes": 1}
    with pytest.raises(WireError, match="actor_learner"):
        request.take("actor_learner", {"folder": folder, "part": {"file": torn}}, {})
    assert request.missing == ["actor_learner"]
    request.take("actor_learner", fields["actor_learner"], {})
    assert request.missing == []
    assert latest(tmp_path).path.name == folder


def test_the_later_checkpoint_is_the_latest_after_weeks_too(tmp_path):
    """Where no env step tells two apart, as offline; also beside names of fewer digits."""
    request = CheckpointRequest(tmp_path, ("critic_learner",), 60.0)
    (tmp_path / "000000000000-900000000").mkdir()
    complete(tmp_path / "000000000000-900000000", [], {})
    made = []
    for now_s in (LONG_S - 1, LONG_S, LONG_S + 1):
        made.append(request.begin(0, now_s))
        (tmp_path / made[-1]).mkdir()
        assert request.take("critic_learner", {"folder": made[-1], "part": {}}, {}) == made[-1]
        assert latest(tmp_path).path.name == made[-1]
    assert made == sorted(made)
