"""Broken samplers: the example in Python with a line changed, one for each clause that is checked."""

import re
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "components" / "examples" / "sampler_python"

#: Its files, each behind those that it imports.
PARTS = ("policy", "messages", "environments", "sampler")
NO_GARBAGE = "            except Exception as error:"
FOR_LEARNER = 'attend("blocked", outlet, '

#: clause -> the mistake: what stands in the program, and what the broken one has in its place.
MISTAKES = {
    "L1": [('"sender": name,', '"sender": name.upper(),')],
    "L2": [("    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)", "    pass")],
    "L3": [('    sys.exit(f"{name} is taken by another process")', "    pass")],
    "L4": [("print(os.getpid(), incarnation, file=lock, flush=True)", "")],
    "L5": [("signal.signal(signal.SIGTERM, on_sigterm)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")],
    "L6": [('if kind == "stop" and', "if False and")],
    "L6-all": [('{"sampler", "*"} & set(fields["roles"])', '"sampler" in fields["roles"]')],
    "L7": [('{"sampler", "*"} & set(fields["roles"])', "True")],
    "L8": [("incarnation = secrets.randbelow(2**53 - 1) + 1", "incarnation = 1")],
    "L9": [("incarnation = secrets.randbelow(2**53 - 1) + 1", "incarnation = 2**40")],
    "L14": [
        (
            "context, began_s, stopping = ",
            '__import__("subprocess").Popen(["sleep", "60"])\ncontext, began_s, stopping = ',
        )
    ],
    "L10": [('if plan["format"] != 2:', "if False:")],
    "C1": [
        (
            '        self.socket.connect(self.about["endpoint"])',
            '        if not os.path.exists(self.about["endpoint"][6:]):\n'
            '            sys.exit("nobody is there")\n'
            '        self.socket.connect(self.about["endpoint"])',
        )
    ],
    "C1-slow": [
        (
            '            self.socket.subscribe(b"")\n',
            '            self.socket.subscribe(b"")\n'
            "            self.socket.reconnect_ivl = self.socket.reconnect_ivl_max = 20_000\n",
        )
    ],
    "C2": [(" or sequence <= self.had.get(key, -1)", "")],
    "C3": [
        ('self.socket.sndhwm = self.socket.rcvhwm = self.about["high_water_mark"]', "self.socket.sndhwm = 0")
    ],
    "C5": [
        (
            '    if header["protocol"] != 1:\n',
            '    if header.get("repeat"):\n        raise ValueError("again")\n'
            '    if header["protocol"] != 1:\n',
        )
    ],
    "C6": [('header["incarnation"], header["kind"])', '0, header["kind"])')],
    "C7": [("self.socket.linger, self.socket.reconnect_ivl_max = 1000, 200", "self.socket.linger = -1")],
    "M2": [('plan["channels"][channel], 0, 0, {}', 'plan["channels"][channel], 1, 0, {}')],
    "M3": [('        "reward": rewards.astype(np.float32)', '        "reward": rewards.astype(np.float64)')],
    "M4": [(NO_GARBAGE, "            except ZeroDivisionError as error:")],
    "M4-policies": [('    if header["kind"] == "policy":', "    if False:")],
    "M5-arrays": [("if dtype not in DTYPES or", 'if dtype != "float32" or')],
    "M5": [('type(header["sequence"]) is not int', '"mood" in header')],
    "M6": [("if len(frame) > 65536:", "if False:")],
    "X1": [
        (
            "policy, limit = None, -1",
            'head = {"kind": "deterministic", "noise_min": 0, "noise_max": 0}\n'
            'layers = [{"kind": "linear", "in": 3, "out": 1}]\n'
            'about = {"layers": layers, "observation": {"normalize": False}, "distribution": head}\n'
            'about, none = {"version": 0, "description": about}, {"parameters": np.zeros(4)}\n'
            'bounds = {**none, "action_low": np.float32([-2]), "action_high": np.float32([2])}\n'
            'policy, limit = (about, bounds), float("inf")',
        )
    ],
    "X2": [("    if outlets[0].produced >= limit:", "    if True:")],
    "X3": [('if key in outlet.about["fields"]}', 'if key != "history"}')],
    "X4": [
        (
            "wanted = {key: arrays[key] for",
            "wanted = {key: arrays[key] if outlet is outlets[0] else -arrays[key] for",
        )
    ],
    "X5": [('options.get("envs", 8)', "3")],
    "X6": [
        (
            "    arrays, frames, masks = collect(policy, frames, masks)",
            "    arrays, frames, masks = collect(policy, *collect(policy, frames, masks)[1:])",
        )
    ],
    "X7": [
        (
            '"produced": outlet.produced + T * N,',
            '"produced": outlet.produced + T * N + (outlet.sequence == 2),',
        )
    ],
    "X8": [("= envs.step(given)", "= envs.step(-given)")],
    "X8-crossing": [("= envs.step(given)", "= envs.step(-given if t == T - 1 else given)")],
    "X9": [("        check_finite(following, reward)\n", "        reward = 0.1 * reward\n")],
    "X10": [('final_obs.append(info["final_obs"][n])', "final_obs.append(following[n])")],
    "X11": [
        ('"terminated": terminated,', '"terminated": truncated,'),
        ('"truncated": truncated,', '"truncated": terminated,'),
    ],
    "X12": [
        (
            '        attend("blocked", outlet, ',
            "        waited_s = time.monotonic() - waits_since_s\n"
            '        outlet.produced += T * N * (1 < waited_s < 1.25 and waits[:6] == "critic")\n'
            '        attend("blocked", outlet, ',
        )
    ],
    "X13": [('"policy_version": policy[0]["version"],', '"policy_version": 0,')],
    "X14": [("envs.reset(seed=int(rng.integers(2**31 - N)))", "envs.reset(seed=[5] * N)")],
    "X14-lives": [("int(rng.integers(2**31 - N))", "secrets.randbelow(2**31 - N)")],
    "X14-names": [('plan["run"]["seed"], int(sys.argv[2]), life', 'plan["run"]["seed"], life')],
    "X15": [
        ("AutoresetMode.SAME_STEP", "AutoresetMode.NEXT_STEP"),
        ('final_obs.append(info["final_obs"][n])', "final_obs.append(following[n])"),
        ('envs.legal(info["final_info"])[n]', "masks[n]"),
    ],
    "X16": [
        (
            '"reward": rewards.astype(np.float32),',
            '"reward": np.where(np.arange(N), rewards, np.nan).astype(np.float32),',
        ),
        ("    if not all((np.abs(", "    if False and not all((np.abs("),
    ],
    "X17": [("frames), masks)", "frames), masks | (policy[0]['version'] == 3))")],
    "X17-last": [
        ("np.concatenate([mask_rows, masks[None]])", "np.concatenate([mask_rows, masks[None] | True])")
    ],
    "A1": [('if fields["version"] == 0 and bounded:', "if False:")],
    "A1-shared": [
        (
            "rng.uniform(low, high, (self.num, low.size))",
            "rng.uniform(low, high, (1, low.size)).repeat(self.num, 0)",
        )
    ],
    "A2": [("            x = np.maximum(x, 0)", "            x = np.maximum(x, 0.01 * x)")],
    "A3": [("else rng.standard_normal(mean.size, np.float32)", "else np.zeros(mean.size)")],
    "A3-shared": [
        (
            "act(fields, weights, o, rng, p, m) for",
            "act(fields, weights, o, np.random.default_rng(s), p, m) for s in [rng.integers(2**60)] for",
        )
    ],
    "A3-again": [
        (
            "    rows, final_obs, final_masks",
            "    envs.rng = np.random.default_rng(2) if policy[0]['version'] == 2 else envs.rng\n"
            "    rows, final_obs, final_masks",
        )
    ],
    "A4": [(" - 0.5 * np.log(2 * np.pi) - squash)", " - 0.5 * np.log(2 * np.pi))")],
    "A5": [("    if outlets[0].produced >= limit:", "    if policy is None:")],
    "A6": [('        refuse(f"policy version', '        sys.exit(f"policy version')],
    "A6-actions": [
        (
            "return action.reshape(shape), given.reshape(shape)",
            "return np.resize(action, shape), np.resize(given, shape)",
        )
    ],
    "A7": [('attend("starved", policies,', 'attend("idle", policies,')],
    "A8": [
        (
            "        policy = news[1:]",
            '        if policy and news[1]["version"] == policy[0]["version"]:\n            continue\n'
            "        policy = news[1:]",
        )
    ],
    "A9": [('while not (plan["balance"]["in_order"] and', "while not (False and")],
    "A10": [
        ('np.clip(action, weights["action_low"], weights["action_high"]) if bounded', "given if bounded")
    ],
    "A10-kept": [("return action.reshape(shape), given", "return given.reshape(shape), given")],
    "H1": [('report.send("hello", about, {})', "")],
    "H1-first": [
        (
            'report.send("hello", about, {})',
            'report.send("report", {**about_me(), "uptime_s": 0.1}, {})\n    report.send("hello", about, {})',
        )
    ],
    "H2": [("report_due_s = awake_s + 0.5", "report_due_s = awake_s + 2.5")],
    "H3": [
        (
            "    if awake_s >= report_due_s:\n        report_due_s",
            '    if awake_s >= report_due_s and charge != "blocked":\n        report_due_s',
        )
    ],
    "H4": [('        "pid": os.getpid(),\n', '        "pid": 1,\n')],
    "H5": [("outlet.produced for outlet in outlets}", "2 * outlet.produced for outlet in outlets}")],
    "H6": [
        (
            '"waiting_for": waits if waits and time.monotonic() > waits_since_s + 1 else "",',
            '"waiting_for": "",',
        )
    ],
    "H7": [('int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")', "1")],
    "H8": [('report.send("bye", {**about_me(), "reason": stopping}, {}, wait_ms=1000)', "")],
    "H9": [("            ended.append((returns[n], lengths[n]))\n", "")],
    "H10": [
        (
            'ended = ended if not report.send("episodes", {}, told, wait_ms) else []',
            'ended = [] if report.send("episodes", {}, told, wait_ms) else []',
        )
    ],
}

#: The starts of broken samplers: mistakes that do not hide each other, and the clause that chooses the acts.
STARTS = {
    "L1": ("L1", "L4", "L8", "L14", "C1-slow", "M2", "H4", "H7"),
    "L2": ("L2", "X1", "H8", "L10"),
    "L3": ("L3", "H2", "L5"),
    "L7": ("L7", "H1-first"),
    "M6": ("M6",),
    "H1": ("H1",),
    "C1": ("C1",),
    "X9": ("X3", "X5", "X7", "X8-crossing", "X9", "X10", "X12", "A1", "A3", "A4", "A7", "C2", "C7", "H9"),
    "X4": ("X4", "X8", "X14", "A1-shared", "A2", "A3-shared", "A5", "H6"),
    "X13": ("X13", "C3", "X6"),
    "X15": ("X15", "X11", "A3-again", "H3"),
    "X17": ("X17",),
    "X17-last": ("X17-last",),
    "X2": ("X2",),
    "A8": ("A8", "X16"),
    "C6": ("C6",),
    "M5": ("M5",),
    "A9": ("A9", "H5", "L9", "X14-names"),
    "C5": ("C5",),
    "L6-all": ("L6-all", "X14-lives"),
    "L6": ("L6",),
    "A6": ("A6",),
    "A6-actions": ("A6-actions",),
    "A10": ("A10",),
    "A10-kept": ("A10-kept",),
    "H10": ("H10",),
    "M4": ("M4",),
    "M4-policies": ("M4-policies",),
    "M5-arrays": ("M5-arrays",),
    "M3": ("M3",),
}
#: The topology and environment of a start whose clause not every environment shows.
MASKED = {"on": "cartpole", "overrides": ("run.env=tests.masked:MaskedPole-v0",)}
#: Its reward shows whether an action was clipped.
UNCLIPPED = {"on": "pendulum", "overrides": ("run.env=MountainCarContinuous-v0",)}
ON = {"X17": MASKED, "X17-last": MASKED, "A10": UNCLIPPED}
#: A clause of the act in which a mistake shows, where the first one's is seen in another act too.
ACTS = {
    "M3": "X2",
    "A3-again": "A3",
    "L6-all": "L6",
    "X17-last": "X17",
    "A6-actions": "A6",
    "A10-kept": "A10",
    "M4-policies": "X2",
    "M5-arrays": "M5",
}
#: Starts that take the same road as one of the others.
ALIKE = ("L6", "X17-last", "A6-actions", "A10-kept", "M5-arrays")


def sampler(mistakes=()):
    """The example's files as one program, with these mistakes."""
    parts = "\n\n".join((EXAMPLE / f"{name}.py").read_text() for name in PARTS)
    text = re.sub(rf"^from ({'|'.join(PARTS)}) import .*\n", "", parts, flags=re.MULTILINE)
    for clause in mistakes:
        for old, new in MISTAKES[clause]:
            assert text.count(old) == 1, f"{clause}: {old!r} stands {text.count(old)} times in the example"
            text = text.replace(old, new)
    return text


if __name__ == "__main__":
    print(sampler(sys.argv[1:]))
