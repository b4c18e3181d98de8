"""A game with action masks, whose illegal moves end it: nothing but the mask says which moves are legal."""

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

MOVES, CONTEXTS, LENGTH = 4, 2, 10
#: The moves of each context from the best to the worst.
RANKS = np.array([[0, 1, 2, 3], [3, 0, 2, 1]])


class Game(gymnasium.Env):
    """Ten moves, each in one of two contexts, of which half are legal at random. The best legal one earns
    1, another 0; an illegal one costs 1 and ends the game. The optimum, 10, takes the whole order of all
    moves in each context. At its end no move is legal.

    Args:
        form: ``"info"``, ``"part"`` of a Dict, ``"within"`` a Dict of a Dict, ``"none"``, or ``"pair"`` for
            two moves at once.
        fault: what is wrong with the mask at the step ``at`` of each episode: ``"zeros"``, ``"long"``,
            ``"text"``, ``"two"`` or ``"missing"``.
        at: 0 for the reset.
        limit: whether the tenth step truncates the episode and does not terminate it.
    """

    def __init__(self, form="info", fault="", at=3, limit=False, moves=MOVES):
        self.form, self.fault, self.at, self.limit, self.moves = form, fault, at, limit, moves
        self.pair = 2 if form == "pair" else 1
        self.action_space = MultiDiscrete([moves] * 2) if form == "pair" else Discrete(moves)
        context = Box(0, 1, (CONTEXTS,), np.float32)
        mask = Box(0, 1, (moves,), np.int8)
        parts = Dict(action_mask=mask, context=context)
        self.observation_space = {"part": parts, "within": Dict(observation=parts)}.get(form, context)
        self.num_illegal = 0

    def reset(self, *, seed=None, options=None):
        """A context, and which moves it allows."""
        super().reset(seed=seed)
        self.steps = 0
        self._next()
        return self._given()

    def step(self, action):
        """The move, or both."""
        self.steps += 1
        moves = np.ravel(action)
        if not all(mask[move] for mask, move in zip(self.masks, moves, strict=True)):
            self.num_illegal += 1
            obs, info = self._given()
            return obs, -1.0, True, False, info
        best = [next(move for move in RANKS[self.context] if mask[move]) for mask in self.masks]
        over = self.steps == LENGTH
        self._next()
        if over and not self.limit:
            self.masks[:] = 0
        obs, info = self._given()
        return obs, float((moves == best).mean()), over and not self.limit, over and self.limit, info

    def _next(self):
        self.context = int(self.np_random.integers(CONTEXTS))
        self.masks = self.np_random.integers(0, 2, (self.pair, self.moves)).astype(np.int8)
        self.masks[np.arange(self.pair), self.np_random.integers(self.moves, size=self.pair)] = 1

    def _given(self):
        obs, mask = np.eye(CONTEXTS, dtype=np.float32)[self.context], self.masks.ravel().copy()
        if self.form == "none":
            return obs, {}
        if self.fault and self.steps == self.at:
            wrong = {
                "zeros": mask * 0,
                "long": np.append(mask, 1),
                "text": mask.astype(str),
                "two": mask * 2,
            }
            mask = wrong.get(self.fault)
        named = {} if mask is None else {"action_mask": mask}
        parts = {**named, "context": obs}
        return {"part": (parts, {}), "within": ({"observation": parts}, {})}.get(self.form, (obs, named))


class Pole(gymnasium.Wrapper):
    """CartPole in which, at random, one of the two pushes is not allowed; who makes it all the same is not
    punished. Its physics are CartPole's, so that steps can be repeated.
    """

    def __init__(self):
        super().__init__(CartPoleEnv())

    def reset(self, *, seed=None, options=None):
        """CartPole's, with the mask in info."""
        obs, info = super().reset(seed=seed, options=options)
        return obs, {**info, "action_mask": self._mask()}

    def step(self, action):
        """Likewise."""
        *step, info = super().step(action)
        return (*step, {**info, "action_mask": self._mask()})

    def _mask(self):
        return np.array([(1, 0), (0, 1), (1, 1)][self.unwrapped.np_random.integers(3)], np.int8)


gymnasium.register("MaskedPole-v0", Pole, max_episode_steps=100)
