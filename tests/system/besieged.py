"""One real process of each role among peers that are all hostile: the other end of each of its channels sends
mutated messages, and well-formed ones with the extremes of each field.

    python -m tests.system.besieged --count 100000
    python -m tests.system.besieged --roles evaluator critic_learner --count 1000000

Counts what was sent and refused, how long its reports kept away at most and what CPU time it took meanwhile,
its memory, and how it ended.
"""

import argparse
import json
import math
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgpack
import zmq

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.peers import policies
from spreeze_zmq.peers.every_role import end
from spreeze_zmq.peers.peers import INCARNATION, NAME, Peers
from spreeze_zmq.peers.players import OtherLearner, Sampler
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import BROKER, LEARNERS, POLICY, ROLES
from spreeze_zmq.wire import channels, decode, encode
from tests.system.hostile import MESSAGES, ODD, ODD_NAMES, extremes, mutated, raw, rollout

ROOT = Path(__file__).parents[2]
#: The launcher and its members start processes; ``hostile.py`` has a whole run.
BESIEGED = tuple(role for role in ROLES if role != "member")
SETTINGS = (
    *("algorithm.hidden_sizes=[16]", "algorithm.batch_size=32", "algorithm.learning_starts=64"),
    *("algorithm.replay_capacity=20000", "components.sampler.count=1", "run.stop.minutes=600"),
)
#: Messages between two looks at the process, and longest wait for room in its queue.
TURN, ROOM_S = 200, 60.0
#: Of the messages that ask for a checkpoint one in so many is sent: each is a file.
RARE = {"checkpoint": 500}
#: A file that what is sent would make if anything of it was executed.
MARK = Path(tempfile.gettempdir()) / "spreeze-executed"


#: Settings of a run in which there is such a role.
MORE = {
    "fuser": ("groups.count=2",),
    "observer": ("components.observer.callbacks=['spreeze_zmq.callbacks:Callback']",),
}


class Magazine:
    """What is sent on one channel: messages of its kinds, each field at its extremes, or mutated.

    Args:
        kinds: that the channel carries; other ones come now and then.
        senders: names that they are sent in, each with its incarnation.
        rng: what is drawn with.
        fitting: makes a message whose arrays are those of the run but for a number or a few.
        ends_all: whether the process would be right to end at a message with these frames.
    """

    def __init__(self, kinds, senders, rng, fitting=None, ends_all=lambda frames: False):
        self.rng, self.senders, self.number, self.fitting = rng, senders, 0, fitting
        self.ends_all = ends_all
        golden = [message for message in MESSAGES.values() if message.kind in kinds]
        self.golden = [[bytes(frame) for frame in encode(message)] for message in golden if not ends(message)]
        self.extreme = [message for kind in kinds for message in extremes(kind) if not ends(message)]
        self.others = [message for message in MESSAGES.values() if not ends(message)]

    def next(self):
        """The frames of a message, with the next number of its sender."""
        while self.ends_all(frames := self._drawn()):
            pass
        return frames

    def _drawn(self):
        self.number += 1
        chance = self.rng.random()
        if chance < 0.3:
            return mutated(self.rng, self.rng.choice(self.golden))
        if chance < 0.5 and self.fitting is not None:
            return raw(self.fitting(self.rng, self.number))
        message = self.rng.choice(self.extreme if chance < 0.95 else self.others)
        if self.rng.randrange(RARE.get(message.kind, 1)):
            message = self.rng.choice(self.extreme)._replace(kind="entry")
        sender, incarnation = self.rng.choice(self.senders)
        own = message._replace(sender=sender, incarnation=incarnation, sequence=self.number)
        return with_code(raw(own)) if chance > 0.99 else raw(own)


def ends(message):
    """Whether a process would be right to end."""
    return message.kind in ("stop", "stop_request", "stopping")


def with_code(frames):
    """Also with what a reader that unpickles or evaluates would execute."""
    code = b"cos\nsystem\n(S'touch %s'\ntR." % str(MARK).encode()
    header = {**msgpack.unpackb(frames[0], strict_map_key=False), "note": f"$(touch {MARK})"}
    return [msgpack.packb(header), *([code] * (len(frames) - 1))]


class Siege:
    """One process and its peers.

    Args:
        role: its role.
        folder: the run's, new.
        seed: of what is sent.
    """

    def __init__(self, role, folder, seed):
        command = [sys.executable, str(ROOT / "components" / role)]
        self.role, self.rng = role, random.Random(f"{role} {seed}")
        plan = topology.load("pendulum", [*SETTINGS, *MORE.get(role, ())])
        self.peers = Peers(plan, role, command, folder, "should", 120.0)
        self.lively = "status" if role == BROKER else "report"
        self.sent, self.longest_s, self.last_s, self.refused, self.memory = 0, 0.0, 0.0, {}, []
        self.spent_s, self.busiest_s = math.inf, 0.0
        self.magazines, self.version, self.extreme_policies = {}, 0, list(extremes("policy"))

    def begin(self):
        """Start the process, see that it works, and load."""
        peers = self.peers
        peers.open()
        peers.mark("begun")
        self.life = peers.start(0)
        first = "status" if self.role == BROKER else "hello"
        peers.until("", f"a {first}", lambda: peers.between("begun", None, first), 240.0)
        self.works()
        names = [f"{role}-0" for role in (*LEARNERS, "broker", "evaluator", "sampler", self.role)]
        senders = [(NAME, INCARNATION), ("launcher", 9), *((name, 3) for name in (*names, *ODD_NAMES))]
        for name, about in peers.plan.channels.items():
            fitting = partial(rollout, fields=about.fields) if name.startswith("experience.") else None
            more = {}
            if name == POLICY and self.role != "critic_learner":
                fitting, more = self.policy, {"ends_all": self.is_other_policy}
            if isinstance(peers.ends.get(name), channels.Publisher | channels.Pusher):
                self.magazines[name] = Magazine(about.kinds, senders, self.rng, fitting, **more)
                if about.pattern == "pub_sub":
                    peers.ends[name].lose_nothing()

    def policy(self, rng, number):
        """One that fits, with a number that is none, or with a field at its extreme."""
        policy = policies.random_policy(self.peers.plan.environment, "tanh_normal", 1)
        policy = policy._replace(sender=NAME, incarnation=INCARNATION, sequence=number)
        if number % 2:
            policy.arrays["parameters"][rng.randrange(policy.arrays["parameters"].size)] = rng.choice(ODD[:3])
            return policy
        extreme = rng.choice(self.extreme_policies).fields
        return policy._replace(fields={**extreme, "description": policy.fields["description"]})

    def is_other_policy(self, frames):
        """Whether it is a sound policy, and not one of this run: nobody can act with it."""
        try:
            message = decode(frames)
        except WireError:
            return False
        fits = self.policy(self.rng, 0).fields["description"]
        return message.kind == "policy" and message.fields["description"] != fits

    def works(self):
        """See that the process makes of good messages what it should."""
        peers = self.peers
        peers.heard.clear()
        peers.mark("begun")
        if self.role in LEARNERS:
            self.trains()
            return
        if POLICY in peers.ends:
            peers.restart(POLICY, self.rng.randrange(1, 2**50))
            policy = policies.random_policy(peers.plan.environment, "tanh_normal", 1)
            self.version += 1
            peers.publish(POLICY, "policy", policy.arrays, **{**policy.fields, "version": self.version})
        wanted = {"sampler": "rollout", "evaluator": "evaluation"}.get(self.role, self.lively)
        peers.until("", f"a {wanted}", lambda: peers.between("begun", None, wanted))

    def trains(self):
        """Push rollouts of a new stream and publish what the other learner would, until updates are made."""
        peers, sampler, other = self.peers, Sampler(self.peers), OtherLearner(self.peers)
        peers.restart(other.channel, self.rng.randrange(1, 2**50))
        sampler.incarnation = self.rng.randrange(1, 2**50)
        next_s = 0.0

        def more():
            nonlocal next_s
            sampler.push()
            if time.monotonic() > next_s:
                next_s = time.monotonic() + 1.0
                other.publish()
            counts = [
                sum(report.fields["counters"].values()) for report in peers.between("begun", None, "report")
            ]
            return counts and counts[-1] > counts[0]

        peers.until("", "updates", more)

    def fire(self, count):
        """Send ``count`` messages, over all channels in turn."""
        self.last_s = time.monotonic()
        while self.sent < count:
            for name, magazine in self.magazines.items():
                for _ in range(min(TURN, count - self.sent)):
                    self.send(self.peers.ends[name].socket, magazine.next())
                    self.sent += 1
                self.listen()
            if not self.memory and self.sent >= count // 4:
                self.weigh()
        self.listen(1.0)
        self.weigh()

    def weigh(self):
        """Note the memory of the process, in MB."""
        self.life.measure()
        self.memory.append(round(self.life.usage["rss"] / 1e6))

    def listen(self, seconds=0.0):
        """Hear the process, and let what it says go."""
        peers = self.peers
        peers.wait(seconds) if seconds else peers.pump(0.0)
        for heard in peers.heard:
            if heard.message.kind == self.lively:
                self.longest_s = max(self.longest_s, heard.at_s - self.last_s)
                self.last_s = heard.at_s
                spent_s = heard.message.fields.get("cpu_s", 0.0)
                self.busiest_s, self.spent_s = max(self.busiest_s, spent_s - self.spent_s), spent_s
                rows = heard.message.fields.get("refusals" if self.role == BROKER else "refused", ())
                self.refused = {(row["sender"], row["kind"], row["word"]): row["count"] for row in rows}
        peers.heard.clear()
        peers.published.clear()

    def send(self, socket, frames):
        """Wait for room in the queue of the process; meanwhile hear it."""
        until_s = time.monotonic() + ROOM_S
        while True:
            try:
                socket.send_multipart(frames, zmq.NOBLOCK)
                return
            except zmq.Again:
                assert not self.life.ended, self.life.ending()
                assert time.monotonic() < until_s, f"it took nothing for {ROOM_S:.0f} s"
                self.listen(0.002)

    def end(self):
        """It works as before, and leaves when it is asked to."""
        self.works()
        end(self.peers, self.life, "L5")
        return self.peers.notes["exit"][0]


def besieged(role, folder, count, seed=1):
    """A process under ``count`` messages; returns the figures."""
    MARK.unlink(missing_ok=True)
    siege = Siege(role, folder, seed)
    try:
        siege.begin()
        began_s = time.monotonic()
        siege.fire(count)
        wall_s = time.monotonic() - began_s
        code = siege.end()
        log = "\n".join(siege.life.words())
    except BaseException:
        print("\n".join(siege.peers.lives[-1].words()[-30:]) if siege.peers.lives else "", file=sys.stderr)
        raise
    finally:
        siege.peers.close()
    return {
        "role": role,
        "sent": siege.sent,
        "wall_s": round(wall_s),
        "refused": sum(siege.refused.values()),
        "longest_silence_s": round(siege.longest_s, 1),
        "most_cpu_s_between_reports": round(siege.busiest_s, 2),
        "memory_mb": siege.memory,
        "exit_code": code,
        "tracebacks": log.count("Traceback"),
        "log_bytes": len(log),
        "executed": MARK.exists(),
    }


def main():
    """Besiege one role after the other and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="messages to each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--roles", nargs="+", choices=BESIEGED, default=BESIEGED)
    given = parser.parse_args()
    for role in given.roles:
        with tempfile.TemporaryDirectory(prefix="besieged-") as folder:
            print(json.dumps(besieged(role, Path(folder) / "run", given.count, given.seed)), flush=True)


if __name__ == "__main__":
    main()
