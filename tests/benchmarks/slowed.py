"""Slows a process tenfold from outside: SIGSTOP and SIGCONT in turn.

On a busy machine signals are sent late. The delay is compensated: otherwise other load would change how much
a process is slowed, and runs of several settings could not be compared.
"""

import signal
import threading
import time

import psutil

#: The share of time in which the process runs.
LEFT = 0.1


class Slowed:
    """Lets the process that ``find`` returns, and its successors, run for ``LEFT`` of each ``period_s``; in
    short periods it spends more of that on waking up.
    """

    def __init__(self, find, period_s=0.1):
        self.find, self.period_s, self.done = find, period_s, threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        """Suspend and resume the process until ``end``."""
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
        """Send a signal, and wait; returns the seconds that really passed."""
        began_s = time.monotonic()
        process.send_signal(number)
        time.sleep(max(0.0, seconds))
        return time.monotonic() - began_s

    def end(self):
        """Leave the process running."""
        self.done.set()
        self.thread.join()
