"""Starts the recording of one process's messages."""

from __future__ import annotations

import json
from pathlib import Path

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire.channels import RecordingWriter


def limit_of(plan: Plan, role: str, index: int) -> float | None:
    """Largest size of a process's recording in 10^6 bytes; None if the process is not recorded."""
    return plan.recording.get(f"{role}-{index}", plan.recording.get(role))


def begin_recording(
    plan: Plan, role: str, index: int, incarnation: int, limit_mb: float, *, mirrored: bool = False
) -> RecordingWriter:
    """A new recording of the process ``ROLE-INDEX`` in the run's folder.

    Args:
        plan: the run's plan, stored in the header.
        role: role of the process.
        index: index of the process.
        incarnation: incarnation of the process.
        limit_mb: largest size of the recording in 10^6 bytes.
        mirrored: the caller is not the process but its peer.

    Raises:
        InputError: the file cannot be written.
    """
    about = {"name": f"{role}-{index}", "role": role, "index": index, "incarnation": incarnation}
    about |= {"channels": list(plan.components[role].channels), "plan": json.loads(plan.to_json())}
    return RecordingWriter(RunFolder(Path(plan.run_dir)).recordings, about, limit_mb, mirrored=mirrored)
