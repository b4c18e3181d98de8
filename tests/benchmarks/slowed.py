"""Slows a process tenfold from outside: SIGSTOP and SIGCONT in turn."""

import signal
import threading
import time

import psutil

#: A tenth of the time is left.
PERIOD_S, LEFT = 0.1, 0.1


class Slowed:
    """The process that ``find`` gives, and its successor when it is gone, has a tenth of its time left."""

    def __init__(self, find):
        self.find, self.done = find, threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        """Stop and continue until told to end."""
        process = None
        while not self.done.is_set():
            process = process or self.find()
            if process is None:
                time.sleep(0.1)
                continue
            try:
                process.send_signal(signal.SIGSTOP)
                time.sleep(PERIOD_S * (1 - LEFT))
                process.send_signal(signal.SIGCONT)
                time.sleep(PERIOD_S * LEFT)
            except psutil.NoSuchProcess:
                process = None

    def end(self):
        """Leave it running."""
        self.done.set()
        self.thread.join()
