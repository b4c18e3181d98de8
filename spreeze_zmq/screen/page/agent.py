"""Plays one environment with the newest policy in real time and sends the pictures to browsers.

The environment, the subscription to policies and the thread that plays exist only while a browser watches.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Response

from spreeze_zmq.base.errors import SpreezeError
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.evaluation.stage import Stage, open_stage
from spreeze_zmq.policy import FrameStack, Policy, played, without_noise
from spreeze_zmq.screen.page.delivery import deliver
from spreeze_zmq.screen.page.pace import Pace
from spreeze_zmq.screen.page.policies import Policies

if TYPE_CHECKING:
    from spreeze_zmq.screen.page.studio import Studio

log = logging.getLogger("spreeze")

#: Largest rates of pictures, and of a MuJoCo model's states, which are interpolated between two steps.
PICTURES_PER_S, STATES_PER_S = 30.0, 60.0
JPEG_QUALITY = 82
#: Pause at the end of an episode, and time that the environment is kept without a visitor.
PAUSE_S, KEPT_S = 0.6, 3.0
#: Seconds between two checks for a newer policy, and between two captions.
NEW_POLICY_S, CAPTION_S = 1.0, 0.25


class Visitor:
    """The newest picture and caption that one browser has not been sent yet."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.waiting: dict[str, str | bytes] = {}

    def offer(self, kind: str, content: str | bytes) -> None:
        """Replace the waiting content of this kind; may be called in any thread."""
        self.loop.call_soon_threadsafe(self._take, kind, content)

    def _take(self, kind: str, content: str | bytes) -> None:
        self.waiting[kind] = content
        self.news.set()


class PolicyPlayer:
    """Plays episodes while a browser watches.

    Args:
        spec: the environment.
        open_policies: opens the source of policies; called in the thread that plays.
        open_folders: gives, when MuJoCo's viewer begins, the folder for its log and one for its socket, that
            only the user can enter; called in that thread.
        why_not: the reason to show no agent; empty to show it.
        cpu_share: share of the machine's cores that this process may use while no core is idle.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        open_policies: Callable[[], Policies],
        open_folders: Callable[[], tuple[Path, Path]],
        *,
        why_not: str = "",
        cpu_share: float = 1.0,
    ) -> None:
        self._spec, self._open_policies, self._open_folders = spec, open_policies, open_folders
        self._why_not = why_not
        self._visitors: set[Visitor] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._caption: dict[str, Any] = {"mode": "none", "why": "the environment is being created"}
        self._studio: Studio | None = None
        self._unseen_s = 0.0
        self._pace = Pace(cpu_share)

    # --- for the server

    async def show(self, visitor: ServerConnection) -> None:
        """Send pictures and captions until the browser leaves.

        Raises:
            ConnectionClosed: it has left meanwhile.
            TimeoutError: it takes nothing.
        """
        mine = Visitor()
        mine.offer("caption", json.dumps(self._caption))
        self._visitors.add(mine)
        gone = asyncio.ensure_future(visitor.wait_closed())
        try:
            self._begin()
            while not gone.done():
                news = asyncio.ensure_future(mine.news.wait())
                await asyncio.wait((gone, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                mine.news.clear()
                for kind in ("caption", "picture"):
                    if (content := mine.waiting.pop(kind, None)) is not None:
                        await deliver(visitor, content)
        finally:
            gone.cancel()
            self._visitors.discard(mine)

    async def fetch(self, path: str) -> Response | None:
        """A file of MuJoCo's viewer; None if it is not running."""
        return None if self._studio is None else await self._studio.fetch(path)

    async def connect(self, path: str, visitor: ServerConnection) -> None:
        """Serve a WebSocket of MuJoCo's viewer."""
        if self._studio is not None:
            await self._studio.connect(path, visitor)

    # --- the thread that plays

    def _begin(self) -> None:
        with self._lock:
            if self._why_not:
                self._say(mode="none", why=self._why_not)
            elif self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        ended_well = False
        try:
            stage = open_stage(self._spec)
            policies = self._open_policies()
            try:
                self._prepare(stage)
                self._play(stage, policies)
            finally:
                if self._studio is not None:
                    self._studio.rest()
                policies.close()
                stage.env.close()
            ended_well = True
        except SpreezeError as error:
            self._say(mode="none", why=str(error))
        except Exception as error:  # the user's environment may fail; the page and the run go on
            log.exception("the agent cannot be shown")
            self._say(mode="none", why=f"the agent cannot be shown: {' '.join(str(error).split())[:300]}")
        self._thread = None
        if ended_well and self._visitors:  # a visitor has arrived while it ended
            self._begin()

    def _prepare(self, stage: Stage) -> None:
        """Choose how the agent is shown."""
        if stage.model is not None:
            from spreeze_zmq.screen.page.studio import Studio

            self._studio = self._studio or Studio(stage.model, *self._open_folders())
            self._say(mode="viewer", why="")
        elif stage.draw is not None:
            self._say(mode="picture", why="")
        else:
            self._say(mode="none", why=stage.why_not)

    def _play(self, stage: Stage, policies: Policies) -> None:
        """Play episode after episode until nobody watches."""
        policy = self._first(policies)
        seed = 0
        while policy is not None and self._is_watched():
            policy = self._episode(stage, policy, policies, seed)
            seed += 1

    def _first(self, policies: Policies) -> Policy | None:
        """Wait for the first policy; returns None when nobody watches any more."""
        self._say(waiting="waits for the first policy")
        while self._is_watched():
            if (policy := next(policies)) is not None:
                self._say(waiting="")
                return policy
            time.sleep(0.05)
        return None

    def _episode(self, stage: Stage, policy: Policy, policies: Policies, seed: int) -> Policy:
        """Play one episode with the newest policy, version 0 at random as samplers do; returns the policy."""
        frames, rng = policy.frame_stack(), np.random.default_rng(seed)
        obs, info = stage.begin(seed)
        frames.begin(obs, info.get("action_mask"))

        def act(frames: FrameStack) -> NDArray[Any]:
            if policy.version:
                return without_noise(policy)(frames)
            about: Any = {"memory": frames.memory, "action_mask": frames.action_mask}
            return policy.env_action(policy.act(frames.seen, rng, **about)[0])

        play = played(stage.env, frames, act)
        total, steps, over, looked_s, captioned_s = 0.0, 0, False, time.monotonic(), 0.0
        due_s = time.monotonic()
        while not over and self._is_watched():
            now_s = time.monotonic()
            if now_s - looked_s > NEW_POLICY_S:
                looked_s, policy = now_s, next(policies) or policy
            before = None if stage.qpos is None else stage.qpos()
            step = next(play)
            over, broken = bool(step.ended[0]), bool(step.failed[0])
            total, steps = total + float(step.reward[0]), steps + (not broken)
            stage.see(step)
            if now_s - captioned_s > CAPTION_S or over:
                captioned_s = now_s
                self._say(
                    version=policy.version,
                    env_steps=int(policy.extras.get("env_steps", 0)),
                    steps=steps,
                    broken=broken,
                    **{"return": total},
                )
            due_s = max(due_s, now_s - 0.25) + stage.step_s
            if not broken:  # else the environment has already begun the next episode
                self._show(stage, before, due_s)
        self._wait(time.monotonic() + PAUSE_S)
        return policy

    def _show(self, stage: Stage, before: NDArray[np.float64] | None, until_s: float) -> None:
        """Show one step, which ends at ``until_s``."""
        if self._studio is not None and stage.qpos is not None and before is not None:
            self._studio.move(before, stage.qpos(), stage.step_s, until_s, self._pace.per_s(STATES_PER_S))
            return
        if stage.draw is not None and self._picture_is_due(stage):
            content = jpeg(stage.draw())
            for visitor in list(self._visitors):
                visitor.offer("picture", content)
        self._wait(until_s)

    def _picture_is_due(self, stage: Stage) -> bool:
        """Whether this step gets a picture: environments may step more often than pictures are sent."""
        self._unseen_s += stage.step_s
        if self._unseen_s < 0.999 / self._pace.per_s(PICTURES_PER_S):
            return False
        self._unseen_s = 0.0
        return True

    def _wait(self, until_s: float) -> None:
        time.sleep(max(0.0, until_s - time.monotonic()))

    def _is_watched(self) -> bool:
        """Whether a browser watches, or returns within ``KEPT_S``."""
        until_s = time.monotonic() + KEPT_S
        while not self._visitors:
            if time.monotonic() > until_s:
                return False
            time.sleep(0.1)
        return True

    def _say(self, **caption: Any) -> None:
        self._caption = {**self._caption, **caption}
        text = json.dumps(self._caption)
        for visitor in list(self._visitors):
            visitor.offer("caption", text)


def jpeg(picture: NDArray[np.uint8]) -> bytes:
    """A picture ``[height, width, 3]`` as JPEG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()
