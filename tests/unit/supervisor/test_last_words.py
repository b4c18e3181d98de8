"""What of a log says why its process has ended."""

import pytest

from spreeze_zmq.supervisor import last_words
from spreeze_zmq.supervisor.sentences import MOST_LINES

CHAIN = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'obs'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
ValueError: shape (3,)
expected (4,)"""


def test_last_words_are_the_last_traceback_with_its_causes(tmp_path):
    """Earlier tracebacks that were survived do not count; the whole message does."""
    log = tmp_path / "log"
    log.write_text(
        "Traceback (most recent call last):\nOSError: survived\n12:00 INFO on we go\n" + CHAIN + "\n\n"
    )
    assert last_words(log) == CHAIN


def test_last_words_without_a_report_are_the_first_and_the_last_lines_of_the_life(tmp_path):
    """A program in another language has its own way of failing, which may begin at its first line."""
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    ends = [f"line {number}" for number in (0, 1, 2)], [f"line {number}" for number in range(90, 100)]
    assert last_words(log).splitlines() == [*ends[0], "  ... 87 lines left out ...", *ends[1]]
    begun = len("line 0\n") * 10 + len("line 10\n") * 80
    assert last_words(log, begun).splitlines() == ends[1]
    log.write_text("an earlier life\n" + "begun\n" * 3 + "at work\n" * 20_000 + "\n".join(ends[1]) + "\n")
    assert last_words(log, len("an earlier life\n")).splitlines() == ["begun"] * 3 + ["  ..."] + ends[1]


#: What programs in other languages say as they crash: the line that matters, then many of the stack.
CRASHES = {
    "JavaScript": "/s/sampler.js:12\n  envs.step(a)\n       ^\n\nTypeError: envs.step is not a function\n",
    "Rust": "thread 'main' panicked at src/main.rs:9:5:\nindex out of bounds: the len is 3\n",
    "Go": "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\n",
    "C++": "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::at\n",
}


@pytest.mark.parametrize("language", CRASHES)
def test_last_words_of_a_foreign_crash_begin_with_what_happened(tmp_path, language):
    """However deep the stack below it, and whatever was said before."""
    log = tmp_path / "log"
    report = CRASHES[language] + "".join(f"    at frame {number}\n" for number in range(30))
    log.write_text("at work\n" * 50 + report)
    words = last_words(log)
    assert CRASHES[language] in words
    assert words.endswith("at frame 29")
    assert words.count("at work") <= 4


def test_last_words_begin_at_faulthandlers_report(tmp_path):
    """A segmentation fault has a stack too."""
    log = tmp_path / "log"
    log.write_text(
        "hello\n" * 20 + "Fatal Python error: Segmentation fault\n\nCurrent thread:\n  File 'a.py'\n"
    )
    assert last_words(log).startswith("Fatal Python error: Segmentation fault")


def test_last_words_of_a_deep_recursion_keep_both_ends(tmp_path):
    """How it began and what it said."""
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\n" + "  frame\n" * 2000 + "RecursionError: too deep\n")
    words = last_words(log).splitlines()
    assert words[0] == "Traceback (most recent call last):"
    assert words[-1] == "RecursionError: too deep"
    assert len(words) == MOST_LINES + 1


def test_last_words_of_nothing_are_empty(tmp_path):
    """No log, an empty one, and bytes that are no text are no reason to fail."""
    assert last_words(tmp_path / "none") == ""
    (tmp_path / "log").write_bytes(b"")
    assert last_words(tmp_path / "log") == ""
    (tmp_path / "log").write_bytes(b"\xff\xfe broken\n")
    assert last_words(tmp_path / "log").endswith("broken")
