// A sampler with an environment of its own: node sampler.js RUN_FILE [INDEX]
"use strict";

const [crypto, fs, os] = ["crypto", "fs", "os"].map(require);
const { spawnSync } = require("child_process");
const { setTimeout: sleep } = require("timers/promises");
const Environment = require("./pendulum.js");
const { LARGEST, array, arraysOf, checkHeader, checkPolicy, checkStop } = require("./messages.js");
const { act, clamp, places } = require("./policy.js");
const { randomOf } = require("./random.js");

/** Ends the process: code 2 says that the input is at fault, after code 1 it is started again. */
const fail = (code, why) => (console.error(`sampler: ${why}`), process.exit(code));
if (!fs.existsSync(process.argv[2] ?? "")) fail(2, "usage: node sampler.js RUN_FILE [INDEX]");
const plan = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
if (plan.format !== 2) fail(2, `${process.argv[2]} is not a run file of format 2`);
const { environment, run, components: { sampler: mine } } = plan;
const { envs: N, rollout_steps: T } = mine.options;
if (`${environment.obs_shape}/${environment.action_shape}` !== `${Environment.obsSize}/${Environment.actionSize}`)
  fail(2, `${environment.id} has other observations or actions than the environment here`);
if (Object.keys({ ...environment.kwargs, ...run.randomize }).length)
  fail(2, 'run.env_kwargs and run.randomize are not known here: leave them out, or use = "sampler"');
for (const channel of Object.keys(mine.channels).filter((key) => plan.channels[key].curve))
  fail(2, `channels.${channel}.curve: encryption is not known here: leave it out, or use = "sampler"`);
let zmq, msgpack;
try {
  [zmq, msgpack] = ["zeromq", "@msgpack/msgpack"].map(require);
} catch (error) {
  fail(2, `npm packages are missing: npm install --prefix ${__dirname} (${error.message.split("\n")[0]})`);
}

/** Holds a name: the program flock locks the open file, which is ours and stays open. */
function claim(index) {
  const file = fs.openSync(`${plan.socket_dir}/sampler-${index}.lock`, "a+", 0o600);
  if (spawnSync("flock", ["-xn", "3"], { stdio: ["ignore", "ignore", "ignore", file] }).status !== 0) return false;
  fs.ftruncateSync(file);
  return fs.writeSync(file, `${process.pid} ${incarnation}\n`) > 0;
}

const incarnation = 1 + crypto.randomInt(2 ** 47);
let index = Number(process.argv[3] ?? (mine.launched ? mine.count.maximum : 0));
while (!claim(index)) process.argv[3] ? fail(1, `sampler-${index} is taken`) : index++;
const name = `sampler-${index}`;
const clock_s = { busy: 0, blocked: 0, starved: 0, idle: 0 };
let [stopping, waiting_for, dropped, charged] = [false, "", 0, performance.now()];
const seed = `${run.seed}/${index}/${plan.balance.in_order ? 0 : incarnation}`;
const digest = crypto.createHash("sha256").update(seed).digest();
const random = randomOf([0, 4, 8, 12].map((at) => digest.readInt32LE(at)));

const [taken, refused] = [{}, {}]; // messages of each sender and kind, and those passed over, of each word too
/** Counts a message that is passed over: the run shows the first one of each kind. */
function passOver(header, { word = "bad_header", message }) {
  const text = (value) => (typeof value === "string" ? value.slice(0, 64) : "");
  const [sender, kind] = [text(header?.sender), text(header?.kind)];
  console.error(`a message of ${sender || "somebody"} is passed over: ${word}: ${message}`);
  const row = refused[[sender, kind, word]] ?? { sender, kind, word, count: 0, first: message };
  if (row.count++ || Object.keys(refused).length < 64) refused[[sender, kind, word]] = row;
}

/** One connecting end of a channel. */
class Channel {
  constructor(channel, Socket) {
    [this.about, this.sequence, this.produced, this.had] = [plan.channels[channel], 0, 0, {}];
    this.socket = new Socket({ linger: 1000, reconnectMaxInterval: 200 });
    this.socket[Socket === zmq.Push ? "sendHighWaterMark" : "receiveHighWaterMark"] = this.about.high_water_mark;
    if (Socket === zmq.Subscriber) this.socket.subscribe();
    this.socket.connect(this.about.endpoint);
    this.wait = `${this.about.binds} to take a rollout (${this.about.endpoint})`;
  }

  /** Whether there was a place. */
  send(kind, fields, arrays = {}) {
    if (!this.socket.writable) return false;
    const described = Object.entries(arrays).map(([key, { dtype, shape }]) => [key, dtype, shape]);
    const header = { protocol: 1, kind, sender: name, incarnation, arrays: described, fields };
    header.sequence = this.sequence++;
    const frames = [Buffer.from(msgpack.encode(header)), ...Object.values(arrays).map(({ bytes }) => bytes)];
    this.socket.send(frames).catch((error) => fail(1, error.message));
    return true;
  }

  /** Calls `take(kind, fields, arrays)` for each message that is news. */
  async listen(take) {
    for await (const [head, ...frames] of this.socket) {
      let header;
      try {
        header = msgpack.decode(head);
        checkHeader(header);
        const { kind, sender, incarnation: life, sequence, fields, arrays } = header;
        const known = arraysOf(arrays, frames);
        const isNew = !(sequence <= (this.had[`${kind}/${sender}/${life}`] ?? -1)); // else for somebody who joined late
        if (!isNew || !this.about.kinds.includes(kind)) continue;
        take(kind, fields, known);
        this.had[`${kind}/${sender}/${life}`] = sequence;
        taken[[sender, kind]] = (taken[[sender, kind]] ?? 0) + 1;
      } catch (error) {
        passOver(header, error);
      }
    }
  }
}

const [control, policies] = ["control", "policy"].map((key) => new Channel(key, zmq.Subscriber));
const experience = Object.keys(mine.channels).filter((key) => key.startsWith("experience."));
const [report, ...outlets] = ["report", ...experience].map((key) => new Channel(key, zmq.Push));
const about = () => ({
  ...{ role: "sampler", name, pid: process.pid, time_s: Date.now() / 1000, uptime_s: process.uptime() },
  ...{ clock_s, counters: { reports_dropped: dropped }, gauges: {}, waiting_for, rss_bytes: process.memoryUsage.rss() },
  refused: Object.values(refused).map((row) => ({ ...row, good: taken[[row.sender, row.kind]] ?? 0 })),
  cpu_s: (process.cpuUsage().user + process.cpuUsage().system) / 1e6,
  pushed: Object.fromEntries(outlets.map((outlet) => [outlet.about.binds, outlet.produced])),
});

/** Charges the time since the last call to a clock. */
function charge(clock, now = performance.now()) {
  clock_s[clock] += (now - charged) / 1000;
  charged = now;
}

/** Messages, signals and reports have their turn. */
const breathe = () => (charge("busy"), sleep(0));

/** Waits until it is so or the process must stop; the time is charged to a clock. */
async function until(isSo, clock, what) {
  charge("busy");
  const began = performance.now();
  while (!isSo() && !stopping) {
    await sleep(1); // the package has no wait for a place
    charge(clock);
    waiting_for = performance.now() - began > 1000 ? what : "";
  }
  waiting_for = "";
}

/** The same numbers of the environment: what is not finite never travels. */
const isFinite = (x) => Math.abs(x) <= LARGEST;
const finite = (xs) => (xs.every(isFinite) ? xs : fail(1, `the environment gave a number that is not finite: ${xs}`));
const begin = (one) => Object.assign(one, { obs: finite(one.env.reset(random.uniform)), reward: 0, steps: 0 });
let [batch, ended] = [[], []]; // the environments; episodes that are not reported yet

/** What an environment does next; a policy that cannot act here ends the process. */
function choose({ fields, arrays }, { obs, place }) {
  try {
    const drawn = act(fields, arrays, obs, random, place);
    if (drawn.action.length === Environment.actionSize && drawn.action.every(Number.isFinite)) return drawn;
    throw new Error(`its action is [${drawn.action}], the environment takes ${Environment.actionSize} numbers`);
  } catch (error) {
    return fail(2, `policy version ${fields.version} cannot be used: ${error.message}`);
  }
}

/** T steps of N environments: the arrays of a rollout; undefined if the process must stop before. */
async function collect(policy) {
  const bound = (key, k) => policy.arrays[key] ?? environment.action_limits?.map((pair) => pair[k]) ?? [];
  const [low, high] = [bound("action_low", 0), bound("action_high", 1)];
  const given = (a, i) => clamp(a, low[i] ?? -Infinity, high[i] ?? Infinity);
  const [obs, action, reward, log_prob, terminated, truncated] = [[], [], [], [], [], []];
  const [final_obs, final_index] = [[], []];
  for (let t = 0; t < T; t++)
    for (const [n, one] of batch.entries()) {
      if (performance.now() - charged > 200) await breathe();
      if (stopping) return undefined;
      const drawn = choose(policy, one);
      const step = one.env.step(drawn.action.map(given));
      finite([...step.obs, step.reward]);
      const isCut = (one.steps += 1) >= (environment.max_episode_steps ?? Infinity);
      obs.push(...one.obs), action.push(...drawn.action), reward.push(step.reward), log_prob.push(drawn.logProb);
      terminated.push(step.terminated), truncated.push(isCut);
      [one.obs, one.reward] = [step.obs, one.reward + step.reward];
      if (!step.terminated && !isCut) continue;
      final_obs.push(...step.obs), final_index.push(t, n), ended.push([one.reward, one.steps]);
      begin(one);
    }
  for (const one of batch) obs.push(...one.obs);
  const [K, one, own] = [final_index.length / 2, environment.obs_shape, environment.action_shape];
  return {
    ...{ obs: array("float32", [T + 1, N, ...one], obs), action: array("float32", [T, N, ...own], action) },
    ...{ reward: array("float32", [T, N], reward), log_prob: array("float32", [T, N], log_prob) },
    ...{ terminated: array("bool", [T, N], terminated), truncated: array("bool", [T, N], truncated) },
    ...{ final_obs: array("float32", [K, ...one], final_obs), final_index: array("int32", [K, 2], final_index) },
  };
}

async function main() {
  let [policy, limit, news] = [null, -1, []];
  batch = places(index, N).map((place) => begin({ env: new Environment(), place }));
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (stopping = true));
  let greeted = Infinity;
  const greet = () => {
    greeted = performance.now();
    report.send("hello", { role: "sampler", name, pid: process.pid, protocol: 1, host: os.hostname() });
  };
  control.listen((kind, fields) => {
    const row = kind === "status" ? fields.processes?.[name] : undefined; // a broker that was started again may not know
    if (row?.pid === process.pid && row.ready === false && performance.now() - greeted > 2000) greet();
    if (kind !== "stop") return;
    checkStop(fields);
    stopping ||= ["sampler", "*"].some((role) => fields.roles.includes(role));
  });
  policies.listen((kind, fields, arrays) => {
    checkPolicy(fields, arrays);
    news.push({ fields, arrays });
  });
  greet();
  /** Whether there was a place for the episodes that have ended, if any; else they are told later. */
  const tellEpisodes = () => {
    const column = (dtype, k) => array(dtype, [ended.length], ended.map((episode) => episode[k]));
    const [returns, lengths] = [column("float32", 0), column("int32", 1)];
    if (ended.length && !report.send("episodes", {}, { returns, lengths })) return false;
    ended = [];
    return true;
  };
  const tell = () => {
    dropped += !report.send("report", about());
    tellEpisodes();
  };
  const timer = setInterval(tell, 500);
  const isFresh = () => outlets.every(({ produced }) => produced < limit);
  const adopt = () => {
    if (news.length && !(plan.balance.in_order && isFresh())) {
      policy = plan.balance.in_order ? news.shift() : news.splice(0).pop();
      const limits = policy.fields.collect_until ?? {};
      limit = limits[`${name}/${incarnation}`] ?? limits["*"] ?? Infinity;
    }
    return isFresh();
  };
  while (!stopping) {
    for (const outlet of outlets) await until(() => outlet.socket.writable, "blocked", outlet.wait);
    await until(adopt, "starved", `a policy (${policies.about.endpoint})`);
    if (stopping) break;
    const arrays = await collect(policy);
    if (!arrays) break;
    for (const outlet of outlets) {
      const produced = outlet.produced + T * N;
      const fields = { produced, policy_version: policy.fields.version, num_steps: T, num_envs: N };
      const asked = Object.fromEntries(outlet.about.fields.map((key) => [key, arrays[key] ?? fail(2, `no ${key} here`)]));
      const push = () => outlet.send("rollout", fields, asked) && (outlet.produced = produced);
      await until(push, "blocked", outlet.wait);
    }
    await breathe();
  }
  clearInterval(timer);
  await sleep(200);
  const patience = performance.now() + 1000; // with a broker that takes nothing
  const bye = () => report.send("bye", { ...about(), reason: "told to stop" });
  for (const last of [tellEpisodes, bye]) while (!last() && performance.now() < patience) await sleep(1);
  for (const { socket } of [control, report, policies, ...outlets]) socket.close();
}

main().then(() => (process.exitCode = 0), (error) => fail(1, error.message));
