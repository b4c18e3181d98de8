"""The observer as a real process, whose broker the test plays."""

import time

import pytest

from spreeze_zmq import Callback
from spreeze_zmq.wire import Message

HERE = "tests.component.test_observer"


class Late(Callback):
    """A logger whose service does not answer any more."""

    end_s = 30.0

    def on_ended(self, run, ended):
        """As the class says."""
        time.sleep(1000.0)


@pytest.mark.parametrize("peers", [[f"components.observer.callbacks=['{HERE}:Late']"]], indirect=True)
def test_callbacks_are_left_5_s_after_a_signal_has_ended_the_run(peers):
    """Who sent it kills the launcher, too, 30 s after it."""
    peers.play("observer")
    process = peers.start()
    peers.next("hello")
    peers.until("", "its subscription to the feed", lambda: peers.ends["feed"].subscriptions)
    peers.ends["feed"].publish(
        Message("entry", {"topic": "end", "t_s": 2.0, "about": {"reason": "interrupted by the user"}})
    )
    process.terminate()
    assert peers.next("request").fields["text"].startswith("on_ended has not returned 5 s after the end")
    assert process.wait(30) == 0


class LeavesLate(Callback):
    """Has something to do when the run is over."""

    def on_ended(self, run, ended):
        """Leave a file."""
        time.sleep(0.5)
        (run.folder / "left").touch()


@pytest.mark.parametrize(
    "peers",
    [[f"components.observer={{ callbacks = ['{HERE}:LeavesLate'], stop_grace_s = 2.0 }}"]],
    indirect=True,
)
def test_callbacks_have_time_at_the_end_however_short_the_grace_is(peers):
    """Half of it, at least; the rest is for the observer to leave."""
    peers.play("observer")
    observer = peers.start()
    peers.next("hello")
    observer.terminate()
    assert observer.wait(30) == 0
    assert (peers.folder.path / "left").exists(), peers.logs()
