"""Reports fit in a message, whatever somebody else's code says."""

from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.component import Component
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
    component = SimpleNamespace(
        name=ME, report=lambda kind, fields: sent.append(Message(kind, fields, {}, ME, 1))
    )
    Component.report_failure(component, *failure)
    encode(sent[0])
    return sent[0].fields


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
