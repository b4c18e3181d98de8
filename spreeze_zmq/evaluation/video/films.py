"""Videos of the best policy at given env steps of a run, written by processes of the lowest priority.

As a program, ``POLICY VIDEO FOLDER [MODULE...]``, it writes one of them.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import SpreezeError
from spreeze_zmq.base.files import append_to, copy_whole
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.base.machine import program
from spreeze_zmq.base.parent_death import bound_to_parent
from spreeze_zmq.base.patience import make_folder
from spreeze_zmq.base.trust import make_importable, with_trust
from spreeze_zmq.evaluation.saved import SavedPolicy
from spreeze_zmq.evaluation.video.recorder import record
from spreeze_zmq.run.folder import RunFolder

#: The program at the end of this file.
WRITER = (*PROGRAM, "spreeze_zmq.evaluation.video.films")
#: Longest duration of a video.
SECONDS = 60
#: Characters of its log that a failure keeps: the last ones, which name the reason.
SAID_CHARS = 2_000
#: Wait for the end of a writer that was interrupted.
END_S = 2.0


class VideoSchedule:
    """Writes ``RUN/videos/STEPS.mp4`` and the policy beside it, one video at a time.

    Args:
        folder: the run's.
        steps: env steps; once each is reached, the best policy at that time is shown.
        import_from: the folder of the run's topology.
        trust: modules of the run's environment and algorithm, which may be there.
        made: called with each file that is complete.
        failed: called with a line about each video that could not be written, and the end of its log.
        after: env steps of the checkpoint that the run goes on from; those up to it are of the run before.
    """

    def __init__(
        self,
        folder: RunFolder,
        steps: Sequence[int],
        import_from: Path,
        trust: Sequence[str],
        made: Callable[[Path], object] = lambda path: None,
        failed: Callable[[str, str], object] = lambda summary, said: None,
        *,
        after: int = 0,
    ) -> None:
        self._made, self._failed = made, failed
        self._folder, self._steps = folder, sorted(n for n in steps if n > after)
        self._import_from, self._trust = str(import_from), trust
        self._writer: subprocess.Popen[bytes] | None = None
        self._waiting: list[Path] = []
        self._video = Path()
        self._take_up()

    def _policy_at(self, steps: int) -> Path:
        return self._folder.path / "videos" / f"{steps}.safetensors"

    def _take_up(self) -> None:
        """Go on where an earlier process of this run was: what it has kept is of the policy of that time."""
        kept = [steps for steps in self._steps if self._policy_at(steps).exists()]
        self._steps = [steps for steps in self._steps if steps not in kept]
        self._waiting = [
            self._policy_at(n) for n in kept if not self._policy_at(n).with_suffix(".mp4").exists()
        ]

    def reached(self, env_steps: int) -> None:
        """Begin the videos that are due at this number of env steps; does not wait, and is called often."""
        while self._steps and env_steps >= self._steps[0] and self._folder.best_policy.exists():
            policy = self._policy_at(self._steps.pop(0))
            make_folder(policy.parent)
            copy_whole(self._folder.best_policy, policy)
            self._made(policy)
            self._waiting.append(policy)
        self._take_ended()
        if self._waiting and self._writer is None:
            self._begin(self._waiting.pop(0))

    def _take_ended(self) -> None:
        """Report the video whose writer has ended."""
        if self._writer is not None and self._writer.poll() is not None:
            if self._writer.returncode:
                said = self._log.read_text(errors="replace").strip()[-SAID_CHARS:]
                steps, why = int(self._video.stem), said.rpartition("\n")[2] or "it said nothing"
                self._failed(f"the video at {steps:,} env steps failed: {why} ({self._log})", said)
            else:
                self._made(self._video)
            self._writer = None

    @property
    def _log(self) -> Path:
        return self._folder.logs / "videos.log"

    def _begin(self, policy: Path) -> None:
        self._video = policy.with_suffix(".mp4")
        bind = bound_to_parent(signal.SIGKILL)

        def prepare() -> None:
            bind()
            # What ends the run is sent to the evaluator's group; the evaluator then says what it abandons.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.nice(19)

        with append_to(self._log) as output:
            self._writer = subprocess.Popen(
                [*WRITER, str(policy), str(self._video), self._import_from, *self._trust],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=prepare,
            )

    def close(self) -> None:
        """Abandon the video that is being written and those that wait, and say so: their policies stay."""
        self._take_ended()
        if self._writer is not None:
            self._waiting.insert(0, self._video.with_suffix(".safetensors"))
            self._writer.send_signal(signal.SIGINT)  # the writer then removes its partial file
            try:
                self._writer.wait(END_S)
            except subprocess.TimeoutExpired:
                self._writer.kill()
                self._writer.wait()
        for policy in self._waiting:
            line = f"the video at {int(policy.stem):,} env steps is abandoned, as the run ends"
            self._failed(f"{line}: {self._command(policy)} writes it", "")

    def _command(self, policy: Path) -> str:
        """The command that writes the video of a policy."""
        play = f"{program('spreeze')} play {shlex.quote(str(policy))} --video {policy.stem}.mp4"
        return with_trust(play, self._trust, "" if self._import_from == os.getcwd() else self._import_from)


def main(policy: str, video: str, import_from: str, *trust: str) -> int:
    """Write the video of one episode; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # what the environment starts does not inherit this
    make_importable(Path(import_from))
    try:
        saved = SavedPolicy.load(policy, trust)
        record(saved.policy, saved.environment, video, episodes=1, seed=saved.seed, max_s=SECONDS)
    except SpreezeError as error:
        say(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
