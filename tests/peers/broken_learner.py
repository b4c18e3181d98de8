"""Broken learners and evaluators: a shipped one of which one thing is changed: ROLE L1,H4 RUN INDEX."""

import importlib
import sys
import time

from spreeze_zmq.algorithms.packing import Layout
from spreeze_zmq.balance import DelayGate, RatioGate
from spreeze_zmq.broker.receipts import Receipts
from spreeze_zmq.component import Component, life, weights
from spreeze_zmq.learner import lag, vault
from spreeze_zmq.learner.rounds import RoundExperience
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import channels
from tests.peers.broken_life import LIFE, named, patch


def c3():
    """Its queue has no end."""
    patch(channels.Puller, "_set_options")(
        lambda right: lambda self, mark, size, linger: right(self, 0, 0, linger)
    )


def c6():
    """Takes critics of the first incarnation alone."""

    @patch(weights.Weights, "take")
    def of_the_first(right):
        def take(self):
            message, first = right(self), self.__dict__.setdefault("first", [])
            first += [message.incarnation] if message and not first else []
            return message if message and message.incarnation == first[0] else None

        return take


def c6_rounds():
    """Waits until critics come of rollouts that another life of the critic-learner has lost."""

    @patch(RoundExperience, "meet")
    def of_one_life(right):
        def meet(self, message):
            self._critics_from = message.incarnation
            right(self, message)

        return meet


def c6_policies():
    """Takes policies of the first incarnation alone."""

    @patch(channels.Subscriber, "_is_news")
    def of_the_first(right):
        def is_news(self, message):
            first = self.__dict__.setdefault("first", message.incarnation)
            return (message.kind != "policy" or message.incarnation == first) and right(self, message)

        return is_news


def t1():
    """Takes whatever comes."""
    RatioGate.may_pull = property(lambda gate: True)


def t2():
    """The next life begins with version 0 again."""

    @patch(lag.Versions, "__init__")
    def anew(right):
        def begin(self, file=None, first=0):
            if file is not None:
                file.write(0)
            right(self, file, first)

        return begin

    lag.Versions.restore = lambda self, *about: None


def t2_alone():
    """Gives each version to two policies."""

    @patch(lag.Versions, "advance")
    def seldom(right):
        def advance(self):
            self.calls = self.__dict__.get("calls", 0) + 1
            if self.calls % 2:
                right(self)

        return advance


def t3():
    """What it has received is lost, it says."""

    @patch(Receipts, "to_dict")
    def lost(right):
        def to_dict(self):
            rows = right(self)
            return {
                name: {**row, "received": 0, "lost": row["lost"] + row["received"]}
                for name, row in rows.items()
            }

        return to_dict


def t4():
    """Says that it is saved, and is not."""

    @patch(vault, "write_part")
    def unwritten(right):
        def write(folder, name, make):
            part = right(folder, name, make)
            (folder / name).unlink()
            return part

        return write


def t5():
    """Enters what is refused as received."""
    patch(Receipts, "take")(lambda right: lambda self, rollout, refused=False: right(self, rollout))


def t6():
    """Does not wait for critics; two cores have more to do than its updates, which it makes at leisure."""
    DelayGate.may_update = property(lambda gate: gate.critic_updates > 0 and not time.sleep(0.02))


def t7():
    """Takes weights of any layout."""
    Layout.check = lambda self, layout, what: None


def t8():
    """Begins from nothing after a kill."""
    vault.Vault.restore = lambda self: None


def changed_evaluation(change):
    """Every evaluation is changed before it is reported."""

    @patch(Component, "report")
    def changed(right):
        def report(self, kind, fields, *rest, **more):
            fields = change(self, fields) if kind == "evaluation" else fields
            return right(self, kind, fields, *rest, **more)

        return report


def e1():
    """Names another seed than that of its episodes."""
    changed_evaluation(lambda self, fields: {**fields, "seed": fields["seed"] + 1000})


def taken_for_the_average(played, kept):
    """Evaluates one array of each policy, and saves another one as its parameters."""

    @patch(Policy, "of_average")
    def otherwise(right):
        def make(fields, arrays):
            policy = Policy.from_message(fields, {**arrays, "parameters": arrays[played]})
            policy.arrays, policy.averaged = {**policy.arrays, "parameters": arrays[kept]}, True
            return policy

        return make


def e1_newest():
    """Says that it plays the average, and plays the newest weights."""
    taken_for_the_average("parameters", "average")


def e2():
    """Names another moment than that of the policy."""
    changed_evaluation(lambda self, fields: {**fields, "env_steps": fields["env_steps"] + 1})


def e3():
    """Never finds one the best."""
    changed_evaluation(lambda self, fields: {**fields, "best": False})


def f2():
    """Reports a best policy that it does not keep."""
    changed_evaluation(lambda self, fields: self.folder.best_policy.unlink(missing_ok=True) or fields)


def f2_newest():
    """Plays the average, and keeps the newest weights."""
    taken_for_the_average("average", "parameters")


def f2_torn():
    """Keeps a file that is no policy."""
    changed_evaluation(lambda self, fields: self.folder.best_policy.write_bytes(b"torn") and fields)


MISTAKES = {**LIFE, **named(globals()), "H3": LIFE["H2"]}

if __name__ == "__main__":
    role, mistakes = sys.argv[1:3]
    del sys.argv[1:3]
    for mistake in mistakes.split(","):
        MISTAKES[mistake]()
    sys.exit(life.run(role, importlib.import_module(f"spreeze_zmq.components.{role}.__main__").main))
