"""What a run's machines show: their cores, the links between them, their GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from spreeze_zmq.base.rates import rate
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.trend import numbers
from spreeze_zmq.broker.doctor.vitals import Rule, Vitals
from spreeze_zmq.plan.roles import CRITIC_LEARNER

#: Reports that come this much later than before show a broker that is behind.
LATE_S = 2.0
#: Share of the CPUs that other programs hold, while at most this share is idle.
CROWDED, HARDLY_IDLE = 0.35, 0.1
#: Share of their time in which both the samplers of a machine and the learner wait for each other.
WAITS_FOR_LINK = 0.3
#: A batch that leaves most of a GPU without work, and the share of its time that a learner may wait for
#: samples beside it.
SMALL_BATCH, HARDLY_STARVED = 1024, 0.1
#: Share of a GPU's arithmetic above which its batch, of images, gives it work.
WORKS = 0.05
#: The least CPUs of a machine of which two groups are more, and the share of them that is idle then.
MANY_CPUS, MOSTLY_IDLE = 8.0, 0.5


def crowded(vitals: Vitals) -> Finding | None:
    """Other programs hold the CPUs, and none is free."""
    others, idle = vitals.typical("cpus_of_others"), vitals.typical("cpus_idle")
    cpus = vitals.typical("cpus")
    if others is None or idle is None or not cpus:
        return None
    if others < CROWDED * cpus or idle > HARDLY_IDLE * cpus:
        return None
    per_s = vitals.status.get("critic_updates_per_s", 0.0)
    does = f"takes {rate(per_s)} updates/s" if per_s else "starts slowly"
    return Finding(
        f"other programs use {others:.1f} of the {cpus:g} CPUs",
        f"this run {does} beside them",
        "end them (top shows which), or give the run fewer processes",
        rank=2 if vitals.has_risen else 1,
    )


def slow_link(vitals: Vitals) -> Finding | None:
    """Samplers elsewhere whose rollouts the network holds up, while the learner has none."""
    starved = vitals.typical(f"{CRITIC_LEARNER} starved") or 0.0
    if starved < WAITS_FOR_LINK:
        return None
    for node, row in vitals.status.get("machines", {}).items():
        blocked = vitals.typical(f"{node} blocked") or 0.0
        if blocked >= WAITS_FOR_LINK:
            carries = f"{row.get('sent_bytes_per_s', 0.0) / 1e6:.3g} MB/s"
            return Finding(
                f"samplers on {row['host']} are blocked {blocked:.0%} of the time while {CRITIC_LEARNER} "
                f"starves {starved:.0%}: the link to {row['host']} carries {carries}",
                "the network between the two is full, and more samplers there make nothing more",
                f"a faster link to {row['host']}, fewer samplers there, or smaller observations",
                rank=2,
            )
    return None


def small_batches(vitals: Vitals) -> Finding | None:
    """A GPU that is busy with the starts of small computations."""
    size = vitals.number("batch_size", SMALL_BATCH + 1)
    if not _device(vitals).startswith("cuda") or size > SMALL_BATCH or not _limited_by_learner(vitals):
        return None
    if "batch_size" in vitals.table("measured"):  # auto has chosen it
        return None
    if (vitals.typical("arithmetic used") or 0.0) > WORKS:
        return None
    remedy = 'algorithm.batch_size = "auto"'
    if numbers(vitals.table("balance")).get("publish_every_updates", 0):  # which counts updates of one size
        remedy = "a larger algorithm.batch_size"
    if vitals.number("memory_size", 0) > 0:
        remedy = "a larger algorithm.batch_size, a multiple of algorithm.sequence_length"
    return Finding(
        f"the GPU never waits for samples: it is busy with batches of {size:.0f}",
        "an update of so few takes it about as long as one of some thousands",
        remedy,
        rank=2,
    )


def idle_cpus(vitals: Vitals) -> Finding | None:
    """CPUs that one model's updates cannot use, and samples that nobody waits for."""
    cpus, idle = vitals.typical("cpus"), vitals.typical("cpus_idle")
    if not cpus or idle is None or cpus < MANY_CPUS or idle < MOSTLY_IDLE * cpus:
        return None
    if (
        _device(vitals) != "cpu"
        or vitals.table("balance").get("in_order")
        or vitals.table("groups").get("count") != 1
        or not _limited_by_learner(vitals)
    ):
        return None
    return Finding(
        f"{idle:.0f} of the {cpus:g} CPUs are idle, and the learner never waits for samples",
        "the updates of one model hardly use more than two of them",
        "groups.count = 2: each trains on cores of its own, and their models are fused",
        rank=2,
    )


def _device(vitals: Vitals) -> str:
    """The device of the critic-learner, as the plan names it; empty where it runs on another machine."""
    if CRITIC_LEARNER in vitals.table("placement"):
        return ""
    learner = vitals.table("components").get(CRITIC_LEARNER)
    options = learner.get("options") if isinstance(learner, Mapping) else None
    return str(options.get("device") if isinstance(options, Mapping) else None)


def _limited_by_learner(vitals: Vitals) -> bool:
    """Whether an off-policy learner hardly ever waits for samples."""
    starved = vitals.typical(f"{CRITIC_LEARNER} starved")
    return not vitals.on_policy and starved is not None and starved <= HARDLY_STARVED


def late_reports(vitals: Vitals) -> Finding | None:
    """Reports that wait in front of the broker."""
    late_s = vitals.status.get("reports_late_s", 0.0)
    if late_s < LATE_S:
        return None
    count = sum(row.get("count", 0) for row in vitals.status.get("workers", {}).values())
    return Finding(
        f"the broker is behind: the reports of {count:.0f} processes come {late_s:.0f} s late",
        f"what is shown, and what the broker decides on, is {late_s:.0f} s old; nothing is lost of the sums",
        "fewer samplers (components.sampler.count), or fewer other programs beside the run",
        rank=2,
    )


MACHINE_RULES: tuple[Rule, ...] = (crowded, small_batches, idle_cpus, slow_link, late_reports)
