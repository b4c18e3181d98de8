"""What a process reports of failures that it survives: of those alike, as of an environment that fails in
each step, the number, so that they leave room for its other reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.base.errors import kind_of
from spreeze_zmq.wire.channels import RecordingWriter

#: Bytes kept of a failure's summary, the first ones, and of its traceback, the last ones: a header with both
#: is below the most that a message may have.
SUMMARY_BYTES, TRACEBACK_BYTES = 16_000, 40_000
#: Kinds of failures that are told apart between two reports; further ones are counted as one kind.
MOST_KINDS = 8


def failure_texts(summary: str, traceback: str) -> dict[str, str]:
    """The texts of a report of a failure, whatever their length was."""
    kept = {
        "summary": summary.encode(errors="backslashreplace")[:SUMMARY_BYTES],
        "traceback": traceback.encode(errors="backslashreplace")[-TRACEBACK_BYTES:],
    }
    return {name: text.decode(errors="ignore") for name, text in kept.items()}


class ToldFailures:
    """Reports failures of one process.

    Args:
        name: of the process.
        report: sends the fields of a ``failure``.
        recording: of the process's messages, whose early end is a failure; None for none.
    """

    def __init__(
        self,
        name: str,
        report: Callable[[Mapping[str, Any]], None],
        recording: RecordingWriter | None = None,
    ) -> None:
        self._name, self._report, self._recording = name, report, recording
        self._said_of_recording = ""
        self._alike: dict[str, tuple[int, dict[str, Any]]] = {}

    def tell(self, summary: str, traceback: str, **more: Any) -> None:
        """Report a failure at once; or only count it, where one alike has been reported since :meth:`serve`.

        Args:
            summary: one line.
            traceback: its own account; empty for none.
            more: further fields, with which it is always reported.
        """
        fields = {"name": self._name, **failure_texts(summary, traceback), **more}
        if more:
            self._report(fields)
            return
        kind = kind_of(summary)
        if kind not in self._alike and len(self._alike) >= MOST_KINDS:
            kind = ""
        if kind not in self._alike:
            self._report(fields)
            self._alike[kind] = 0, fields
        else:
            self._alike[kind] = self._alike[kind][0] + 1, fields

    def serve(self) -> None:
        """Report how many there were of each kind beside the first, and an early end of the recording."""
        alike, self._alike = self._alike, {}
        for count, fields in alike.values():
            if count:
                self._report({**fields, "count": count})
        if self._recording and self._recording.ended != self._said_of_recording:
            self._said_of_recording = self._recording.ended
            self.tell(self._recording.ended, "")
