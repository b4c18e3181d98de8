"""Jobs that the workers of a test session share: each is done once, by the worker that comes to it first."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

#: Longest wait for a job of another worker.
DEADLINE_S = 280.0
#: A test that may wait for one ends no sooner.
LATE = pytest.mark.timeout(DEADLINE_S + 20)


@contextmanager
def together(tmp_path_factory, name, jobs, threads=4):
    """Gives a function from a job's name to what it returned, after it went through JSON.

    Args:
        tmp_path_factory: pytest's.
        name: of these jobs.
        jobs: name -> function; they are begun in this order.
        threads: of this worker; most of a job is waiting.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"together-{name}"
    folder.mkdir(exist_ok=True)
    files = {job: folder / f"{number}.json" for number, job in enumerate(jobs)}

    def take(job):
        try:
            files[job].with_suffix(".begun").open("x").close()
        except FileExistsError:
            return
        try:
            result = {"returned": jobs[job]()}
        except Exception as error:
            result = {"raised": repr(error)}
        made = files[job].with_suffix(".new")
        made.write_text(json.dumps(result))
        made.rename(files[job])

    def wait_for(job):
        until_s = time.monotonic() + DEADLINE_S
        while not files[job].exists() and time.monotonic() < until_s:
            time.sleep(0.05)
        result = json.loads(files[job].read_text())
        assert "returned" in result, result
        return result["returned"]

    with ThreadPoolExecutor(threads) as pool:
        begun = [pool.submit(take, job) for job in jobs]
        yield wait_for
        for one in begun:
            one.cancel()
