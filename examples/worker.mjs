// A complete Rota worker for Node 18 or newer, without dependencies; docs/worker-protocol.md is what it follows.
//
//   ROTA_URL=http://127.0.0.1:7070 ROTA_API_KEY=rota_… node examples/worker.mjs
import { randomInt, randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

// Your tasks: parameters in, result out; throwing is failing. `signal` is aborted when the attempt is to stop.
const tasks = {
  add: async ({ a, b }) => a + b,
  nap: async ({ seconds }, signal) => sleep(seconds * 1000, "rested", { signal }),
  fail: async ({ reason }) => { throw new Error(reason); },
};
const { ROTA_URL = "http://127.0.0.1:7070", ROTA_API_KEY } = process.env;
const CONCURRENCY = 100, DRAIN = 30_000, TRUST = 13_000, RENEWAL = 3_000, now = () => performance.now();
const leaving = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => leaving.abort());

async function call(verb, body, within = 15_000, signal = undefined) {
  const headers = { Authorization: `Bearer ${ROTA_API_KEY}`, "Content-Type": "application/json" };
  const line = new AbortController(), hangUp = () => line.abort(), timer = setTimeout(hangUp, within);
  signal?.addEventListener("abort", hangUp);
  try {
    const request = { method: "POST", headers, body: JSON.stringify(body), signal: line.signal };
    const response = await fetch(`${ROTA_URL}/work/${verb}`, request), answer = await response.json();
    if (response.ok) return answer;
    if ([401, 403].includes(response.status)) console.error(answer.detail), process.exit(1);
    throw Object.assign(new Error(answer.detail), { status: response.status });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", hangUp);
  }
}

/** One life of the worker: a new id, until that is lost or the worker leaves. */
async function live() {
  const worker_id = `node-${randomUUID()}`, about = { worker_id, tasks: Object.keys(tasks), host: hostname() };
  const running = new Map(), endings = [];
  let trusted = now() + TRUST, lost = false, drained = false, lostLeases = [];
  await call("register", { ...about, concurrency: CONCURRENCY, pid: process.pid });

  const stop = (why, ids = [...running.keys()]) => ids.forEach((id) => running.get(id)?.abort(why));
  const hangUp = new AbortController(); // of the claim that waits
  const lose = () => { lost = true; stop("released"); hangUp.abort(); };
  leaving.signal.addEventListener("abort", () => hangUp.abort());

  async function renew() {
    const sent = now(); // trust counts from here: the answer may have taken its time
    const { alive, cancelled } = await call("renew", { worker_id }, RENEWAL);
    if (!alive) return lose();
    trusted = sent + TRUST;
    stop("cancelled", cancelled);
  }

  async function run({ id, claim, task_id, parameters, due_in, timeout }) {
    const stopping = new AbortController(), told = { claim, outcome: "released" };
    let began, timer;
    running.set(id, stopping);
    try {
      if (due_in > 0) await sleep(due_in * 1000 + 1, null, { signal: stopping.signal }); // never before its time
      if (leaving.signal.aborted) return;
      began = now();
      timer = setTimeout(() => stopping.abort("timed_out"), Math.min(timeout * 1000, 2 ** 31 - 1));
      const result = await tasks[task_id](parameters, stopping.signal);
      JSON.stringify(result); // what cannot be told has failed
      Object.assign(told, { outcome: "completed", result });
    } catch (error) {
      told.outcome = stopping.signal.aborted ? stopping.signal.reason : "failed";
      told.error = String(error?.stack ?? error).replaceAll("\0", "").slice(0, 8000);
    } finally {
      clearTimeout(timer);
      running.delete(id);
      endings.push(began ? { ...told, started_ago: (now() - began) / 1000 } : told);
    }
  }

  async function claim() {
    if (running.size >= CONCURRENCY) return sleep(20);
    await giveBack();
    const lease_id = randomInt(2 ** 47); // our own number, so that a claim whose answer is lost can be given back
    const asked = { ...about, limit: CONCURRENCY - running.size, wait: 20, lease_id };
    try {
      const { executions, cancelled } = await call("claim", asked, 35_000, hangUp.signal);
      executions.forEach(run);
      stop("cancelled", cancelled);
      if (cancelled.length) await sleep(200); // they take their time to stop
    } catch (error) {
      if (error.status === 409) return lose();
      lostLeases.push(lease_id);
      throw error;
    }
  }

  async function giveBack() {
    if (lostLeases.length) await call("give-back", { worker_id, lease_ids: lostLeases });
    lostLeases = [];
  }

  async function tell() {
    const batch = endings.slice(0, 1000);
    if (batch.length) await finish(batch); // where the answer is lost it is told again, which is safe
    endings.splice(0, batch.length);
  }

  async function finish(batch) {
    const refused = await call("finish", { worker_id, endings: batch }).then(() => null, (error) => error);
    if (refused && !(refused.status < 500)) throw refused;
    if (refused && batch.length > 1) for (const one of batch) await finish([one]);
    else if (refused) await finish([{ claim: batch[0].claim, outcome: "failed", error: refused.message, final: true }]);
  }

  /** Again and again until the life is over; errors are waited out. */
  async function repeat(step, pause, isOver) {
    for (; !lost && !isOver(); await sleep(pause))
      await step().catch((error) => (hangUp.signal.aborted || console.error(error.message), sleep(200)));
  }

  const watch = setInterval(() => now() > trusted && lose(), 250);
  repeat(renew, RENEWAL, () => drained);
  const telling = repeat(tell, 5, () => drained && !endings.length);
  await repeat(claim, 0, () => leaving.signal.aborted);
  for (const end = now() + DRAIN; running.size && now() < end && !lost; ) await sleep(20);
  stop("released");
  drained = await sleep(20, true);
  await Promise.race([telling, sleep(10_000)]);
  clearInterval(watch);
  if (!lost) await giveBack();
  await call("renew", { worker_id, leaving: true });
}

while (!leaving.signal.aborted) await live().catch((error) => (console.error(error.message), sleep(1000)));
process.exit(0);
