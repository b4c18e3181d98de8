"""The cores of a process follow its affinity and the quotas of its control groups."""

import os
import platform

import psutil
import pytest
import torch

from spreeze_zmq.base import machine as this_machine
from spreeze_zmq.base import usage
from spreeze_zmq.base.machine import available_cores, cache_folder, usable_cores
from spreeze_zmq.base.quota import memory_left, quota_cores, quota_used_s
from spreeze_zmq.broker.cores import Cores
from spreeze_zmq.replay import room


@pytest.fixture
def machine(tmp_path):
    """Writes the files of a process in nested groups, each with a quota; returns the process's folder."""

    def write(version, group, quotas, root="/"):
        mount = tmp_path / "a mount"
        shown = str(mount).replace(" ", "\\040")
        for path, quota in quotas.items():
            folder = mount / path
            folder.mkdir(parents=True, exist_ok=True)
            if version == 2:
                (folder / "cpu.max").write_text(f"{quota} 100000\n" if quota != "" else "")
            else:
                (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
                (folder / "cpu.cfs_period_us").write_text("50000\n")
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,cpu,cpuacct,memory"
        lines = f"22 1 0:21 / /proc rw - proc proc rw\n30 1 0:26 {root} {shown} rw,nosuid shared:9 - {kind}\n"
        (tmp_path / "mountinfo").write_text(lines)
        line = f"0::{group}\n" if version == 2 else f"3:cpuset:/x\n2:cpuacct,cpu,memory:{group}\n0::/\n"
        (tmp_path / "cgroup").write_text(line)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("version", "quotas", "expected"),
    [
        (2, {"": "max", "pod": "400000", "pod/one": "150000"}, 1.5),
        (2, {"": "", "pod": "120000", "pod/one": "max"}, 1.2),
        (2, {"pod/one": "max"}, None),
        (1, {"": "-1", "pod": "-1", "pod/one": "100000"}, 2.0),
        (1, {"": "-1", "pod": "25000", "pod/one": "-1"}, 0.5),
        (1, {"pod/one": "-1"}, None),
    ],
)
def test_the_smallest_quota_of_all_groups_around_a_process_counts(machine, version, quotas, expected):
    """Both versions of control groups; a group without a quota says "max" or -1."""
    assert quota_cores(machine(version, "/pod/one", quotas)) == expected


def test_a_container_that_sees_its_own_group_at_the_mount_finds_its_quota(machine):
    """Without namespaces /proc names the group as its host does."""
    folder = machine(1, "/docker/abc", {"": "50000"}, root="/docker/abc")
    assert quota_cores(folder) == 1.0
    assert quota_cores(machine(2, "/../elsewhere", {"": "100000"})) == 1.0


@pytest.mark.parametrize(
    ("version", "used"), [(2, "nr_periods 3\nusage_usec 2500000\n"), (1, "2500000000\n")]
)
def test_a_container_is_as_busy_as_what_runs_in_it(machine, monkeypatch, version, used):
    """Its neighbours, on the same CPUs, neither hold its cores nor leave them idle."""
    folder = machine(version, "/pod/one", {"": "-1" if version == 1 else "max", "pod/one": "150000"})
    group = folder / "a mount" / "pod" / "one"
    assert quota_used_s(4, folder) is None
    (group / "cpu.stat").write_text(used if version == 2 else "nr_periods 3\n")
    if version == 1:
        (group / "cpuacct.usage").write_text(used)
    assert quota_used_s(4, folder) == 2.5
    assert quota_used_s(1, folder) is None, "its affinity is the narrower limit"
    monkeypatch.setattr(usage, "quota_used_s", lambda below: quota_used_s(4, folder))
    assert usage.busy_cpu_s() == 2.5
    monkeypatch.setattr(this_machine, "quota_cores", lambda: 1.5)
    assert Cores()._num_cpus == min(1.5, len(os.sched_getaffinity(os.getppid())))


@pytest.mark.parametrize(
    "odd",
    [
        b"/home/bob/Donn\xe9es rw - ext4 /dev/sdb1",
        b"/tmp/x rw - tmpfs ",
        b"/mnt/a\xe2\x80\xa8b rw - ext4 /dev/sdb1",
    ],
    ids=["no UTF-8", "no source", "a line separator of Unicode"],
)
def test_a_mount_of_anybody_costs_nobody_the_quota(machine, odd):
    """A stick or a remote folder of another user, of any name."""
    folder = machine(2, "/pod/one", {"pod/one": "150000"})
    mounts = folder / "mountinfo"
    mounts.write_bytes(b"29 1 0:33 / %b rw\n" % odd + mounts.read_bytes())
    assert quota_cores(folder) == 1.5


@pytest.mark.parametrize(("version", "least"), [(1, "limit_in_bytes"), (2, "max"), (2, "high")])
def test_a_replay_has_the_memory_that_a_container_leaves(machine, monkeypatch, version, least):
    """The least of all groups around it, with the pages of files, which the kernel gives up for it."""
    folder = machine(version, "/pod/one", dict.fromkeys(("", "pod", "pod/one"), "-1"))
    limits, used, total, unlimited = {
        1: (("limit_in_bytes",), "usage_in_bytes", "total_", "9223372036854771712"),
        2: (("max", "high"), "current", "", "max"),
    }[version]
    for path, most in (("", unlimited), ("pod", "5000"), ("pod/one", unlimited)):
        group = folder / "a mount" / path
        for limit in limits:
            (group / f"memory.{limit}").write_text(f"{most if limit == least else unlimited}\n")
        (group / f"memory.{used}").write_text("4000\n")
        (group / "memory.stat").write_text(f"cache 1\n{total}inactive_file 700\n{total}active_file 40\n")
    monkeypatch.setattr(room, "memory_left", lambda: memory_left(folder))
    assert room.free_bytes(torch.device("cpu")) == 1740


@pytest.mark.parametrize(
    ("mine", "busy_s"),
    [({2, 5}, 30.0), ({0}, 4.0), ({8, 9, 10}, 34.0)],
    ids=["between others", "the first", "numbered anew by a container"],
)
def test_cores_are_busy_by_their_numbers(tmp_path, monkeypatch, mine, busy_s):
    """CPUs that are offline have no line, so that a place in the file is no number."""
    ticks = os.sysconf("SC_CLK_TCK")
    times = {"cpu": 34, "cpu0": 4, "cpu2": 10, "cpu5": 20}
    lines = [f"{cpu} {each * ticks} 0 0 {9 * ticks} {5 * ticks} 0 0 0 7 0\n" for cpu, each in times.items()]
    (tmp_path / "stat").write_text("".join([*lines, "intr 99 1 2\n"]))
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mine)
    monkeypatch.setattr(usage, "quota_used_s", lambda below: None)
    assert usage.busy_cpu_s() == busy_s


@pytest.mark.parametrize(
    ("cores", "model"),
    [
        (["implementer 0x41", "part 0xd05"], "CPU implementer 0x41, CPU part 0xd05"),
        (
            ["implementer 0x41", "part 0xd05", "part 0xd0b"],
            "CPU implementer 0x41, CPU part 0xd05, CPU part 0xd0b",
        ),
    ],
)
def test_a_processor_without_a_name_is_known_by_its_kinds_of_cores(tmp_path, cores, model):
    """What was measured on one such machine is no figure of another."""
    lines = [f"CPU {name.replace(' ', chr(9) + ': ')}\n" for name in cores]
    (tmp_path / "cpuinfo").write_text("processor\t: 0\n" + "".join(lines * 2))
    assert this_machine.cpu_model(str(tmp_path / "cpuinfo")) == f"{platform.machine()}, {model}"


def test_a_system_without_control_groups_has_no_quota(tmp_path):
    """Its files are missing or empty."""
    for _ in range(2):
        assert quota_cores(tmp_path) is None
        assert memory_left(tmp_path) is None
        for name in ("cgroup", "mountinfo"):
            (tmp_path / name).touch()


@pytest.mark.parametrize(("quota", "expected"), [(0.3, 1), (1.4, 1), (1.6, 2), (1e6, None), (None, None)])
def test_cores_are_the_lower_of_affinity_and_quota(monkeypatch, quota, expected):
    """Whole ones, at least one."""
    monkeypatch.setattr(this_machine, "quota_cores", lambda: quota)
    mine = os.sched_getaffinity(0)
    assert available_cores() == min(len(mine), expected or len(mine))
    assert len(usable_cores({0, 1, 2}, system=this_machine.Path("/nowhere"))) == min(3, expected or 3)


def test_parts_of_a_quota_have_as_many_cpus_as_it_pays_for(tmp_path, monkeypatch):
    """A quota of 4 on 8 cores of two threads each: four CPUs of four cores, so that a half of it has two."""
    for cpu in range(16):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    for quota, num_cpus, num_physical in ((4.0, 4, 4), (12.0, 12, 8)):
        monkeypatch.setattr(this_machine, "quota_cores", lambda quota=quota: quota)
        cpus = [cpu for [cpu] in usable_cores(range(16), tmp_path)]
        assert (len(set(cpus)), len({cpu % 8 for cpu in cpus})) == (num_cpus, num_physical)
    monkeypatch.setattr(this_machine, "quota_cores", lambda: 16.0)
    assert usable_cores(range(16), tmp_path) == [[core, core + 8] for core in range(8)]


def test_a_relative_cache_is_no_cache(monkeypatch):
    """The XDG specification passes over a relative path, which every process would resolve by itself."""
    monkeypatch.setenv("HOME", "/home/anybody")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert str(cache_folder()) == "/home/anybody/.cache/spreeze_zmq"
