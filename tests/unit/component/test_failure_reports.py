"""Reports fit in a message, whatever somebody else's code says."""

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.component.failures import MOST_KINDS, ToldFailures
from spreeze_zmq.wire import Message, encode
from tests.unit.envs.own_environments import Count

ME = "sampler-0"


class Shouts(Count):
    """Raises a long error, of characters of three bytes."""

    def step(self, action):
        """At once."""
        raise RuntimeError("環境" * 50_000)


def reported(*failure):
    """The fields of a failure's report, which is encoded."""
    sent = []
    ToldFailures(ME, sent.append).tell(*failure)
    encode(Message("failure", sent[0], {}, ME, 1))
    return sent[0]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environments_long_error_is_reported(num_workers):
    """Its beginning, and the place."""
    failures = []
    env = envs.make(f"{__name__}:Shouts", 1, num_workers=num_workers, on_failure=failures.append)
    env.reset()
    env.step(np.zeros((1, 1), np.float32))
    env.close()
    fields = reported(failures[0].summary, failures[0].traceback)
    assert fields["summary"] == failures[0].summary
    assert "raised in step: RuntimeError: 環境" in fields["summary"]
    assert "test_failure_reports.py" in fields["summary"][-200:]
    assert fields["traceback"].endswith("環境\n")


def test_texts_of_any_size_and_kind_are_reported():
    """Of the summary the first bytes, of the traceback the last ones; halves of characters are no text."""
    fields = reported("begins" + "界" * 100_000, "\udcff" * 100_000 + "ends")
    assert fields["summary"].startswith("begins界")
    assert fields["traceback"].endswith("ends")


def test_failures_alike_are_counted_and_kinds_without_end_are_few_messages():
    """The first of each kind is told at once, the number of the others with the newest one; none is lost."""
    sent = []
    failures = ToldFailures(ME, sent.append)
    for number in range(100):
        failures.tell(f"environment {number} of 8 raised: {chr(0x4E00 + number // 2)}", "")
    assert len(sent) == MOST_KINDS + 1
    failures.serve()
    assert len(sent) <= 2 * (MOST_KINDS + 1)
    assert sum(fields.get("count", 1) for fields in sent) == 100
    assert sent[-1]["summary"].startswith("environment 99 of 8")
    failures.tell("it is not followed", "", checkpoint="1")
    failures.serve()
    assert [fields["summary"] for fields in sent].count("it is not followed") == 1
