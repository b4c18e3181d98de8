"""Slows a process tenfold from outside: SIGSTOP and SIGCONT in turn.

On a busy machine a signal is sent late. What was late is made up for, or a process would be slowed less the
more the others do, and runs of several settings could not be compared.
"""

import signal
import threading
import time

import psutil

#: A tenth of the time is left.
LEFT = 0.1


class Slowed:
    """The process that ``find`` gives, and its successor when it is gone, has a tenth of its time left, once
    in ``period_s``: the shorter that is, the more of what is left goes into waking up.
    """

    def __init__(self, find, period_s=0.1):
        self.find, self.period_s, self.done = find, period_s, threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        """Stop and continue until told to end."""
        process, owed_s = None, 0.0
        while not self.done.is_set():
            process = process or self.find()
            if process is None:
                time.sleep(0.1)
                continue
            try:
                stopped_s = self._signalled(process, signal.SIGSTOP, self.period_s * (1 - LEFT) + owed_s)
                left_s = self._signalled(process, signal.SIGCONT, self.period_s * LEFT)
                owed_s += left_s * (1 - LEFT) / LEFT - stopped_s
            except psutil.NoSuchProcess:
                process, owed_s = None, 0.0

    @staticmethod
    def _signalled(process, number, seconds):
        """Leave it in a state; returns how long it really was."""
        began_s = time.monotonic()
        process.send_signal(number)
        time.sleep(max(0.0, seconds))
        return time.monotonic() - began_s

    def end(self):
        """Leave it running."""
        self.done.set()
        self.thread.join()
