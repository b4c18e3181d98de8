"""Signals that are held back, however many threads the process has."""

import os
import signal
import threading
import time

import pytest

from spreeze_zmq.base.held_back import held_back


@pytest.fixture
def other():
    """A thread that sleeps, and takes what the one beside it blocks."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.fixture
def came():
    """Signals that a handler of each has seen; the handler of SIGINT raises, as Python's own does."""
    seen = []

    def interrupt(number, frame):
        seen.append(number)
        signal.default_int_handler(number, frame)

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: lambda number, _: seen.append(number)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_of_signals_to_the_process_run_once_the_block_is_done(other, came):
    """Whichever thread takes them: each, though one raises; handlers and mask are then as they were."""

    def state():
        numbers = signal.SIGINT, signal.SIGTERM
        return [signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def work():
        with held_back(signal.valid_signals()):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            time.sleep(0.1)  # the other thread takes them
            done.append(not came)

    before, done = state(), []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [True]
    assert state() == before
    assert sorted(came) == [signal.SIGINT, signal.SIGTERM]


def test_a_thread_holds_back_its_own_signals_alone(came):
    """The main thread's handlers run as ever, and stay."""

    def hold():
        with held_back([signal.SIGTERM]):
            held.set()
            assert end.wait(30)

    held, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    os.kill(os.getpid(), signal.SIGTERM)
    assert came == [signal.SIGTERM]
    end.set()
    thread.join(30)
    assert not thread.is_alive()
