// What graphile-worker and pg-boss do on a server: a JSON line for each figure.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { PgBoss } from "pg-boss";

const usage =
  "usage: bench.js (graphile-worker | pg-boss POLICY) CONNECT (one CALLERS SECONDS | many KEYS | fill KEYS | work | latency KEYS | semantics)";

// as objects of a cluster are called
const key = (n) => `namespace-${String(n % 317).padStart(3, "0")}/object-name-${String(n).padStart(8, "0")}`;
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
const now = () => Date.now() / 1000;

function gate() {
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  return { open, opened };
}

// A queue of either kind: add(key), addMany(keys), work(handler, fast), each with keys.
async function graphile(connect) {
  const name = "graphile-worker";
  const logger = new Logger(() => () => {});
  const pool = new pg.Pool({ connectionString: connect, max: 20 });
  for (const event of ["error", "connect"]) pool.on(event, (it) => it.on?.("error", () => {}));
  const worker = { pgPool: pool, connectionString: connect, logger };
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  const spec = (of) => ({ identifier: "bench", payload: { key: of }, jobKey: of });
  const runners = [];
  return {
    name,
    pool,
    add: (of) => utils.addJob("bench", { key: of }, { jobKey: of }),
    addMany: (keys) => utils.addJobs(keys.map(spec)),
    // `fast` with what its documentation says for many jobs a second; else with its defaults
    async work(handler, fast) {
      const preset = {
        worker: {
          ...worker,
          concurrentJobs: fast ? 24 : 4,
          ...(fast && { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }),
        },
      };
      const runner = await run({ preset, taskList: { bench: (payload) => handler(payload.key) }, noHandleSignals: true });
      runners.push(runner);
    },
    async stop() {
      for (const runner of runners) await runner.stop();
      await utils.release();
      await pool.end();
    },
    // what it does itself, four hours after a worker has begun with a job
    lapse: () => pool.query("update graphile_worker._private_jobs set locked_at = null, locked_by = null where locked_at is not null"),
    isGone: async (of) =>
      (await pool.query("select 1 from graphile_worker._private_jobs where key = $1", [of])).rowCount === 0,
    addIn: (client, of) => client.query("select graphile_worker.add_job('bench', json_build_object('key', $1::text), job_key := $1)", [of]),
  };
}

async function boss(connect, policy) {
  const options = { connectionString: connect, max: 20, useListenNotify: true, superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 };
  const main = new PgBoss(options);
  main.on("error", (error) => console.error(error));
  await main.start();
  await main.createQueue("bench", { policy, notify: true, retryLimit: 5, retryDelay: 0 });
  const pool = new pg.Pool({ connectionString: connect, max: 4 });
  const keyed = (of) => (policy === "standard" ? {} : { singletonKey: of });
  return {
    name: `pg-boss (${policy})`,
    pool,
    add: (of) => main.send("bench", { key: of }, keyed(of)),
    addMany: (keys) => main.insert("bench", keys.map((of) => ({ data: { key: of }, ...keyed(of) }))),
    async work(handler, fast) {
      const how = fast
        ? { batchSize: 200, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
        : { batchSize: 1, localConcurrency: 4 };
      await main.work("bench", how, async (jobs) => {
        for (const job of jobs) await handler(job.data.key);
      });
    },
    async stop() {
      await main.stop({ graceful: true, timeout: 5000 });
      await pool.end();
    },
    main,
    addIn: (client, of) => main.send("bench", { key: of }, { ...keyed(of), db: { executeSql: (text, values) => client.query(text, values) } }),
  };
}

function tell(queue, figure) {
  console.log(JSON.stringify({ queue: queue.name, ...figure }));
}

async function fill(queue, keys) {
  for (let from = 0; from < keys; from += 200) {
    await queue.addMany(Array.from({ length: Math.min(200, keys - from) }, (_, n) => key(from + n)));
  }
}

const figures = {
  async one(queue, callers, seconds) {
    const begun = performance.now();
    const ended = () => performance.now() - begun >= seconds * 1000;
    let added = 0;
    const call = async (caller) => {
      for (let n = 0; !ended(); n++, added++) await queue.add(key(caller * 2 ** 32 + n));
    };
    await Promise.all(Array.from({ length: Number(callers) }, (_, caller) => call(caller)));
    tell(queue, { figure: "one", per_s: Math.round(added / ((performance.now() - begun) / 1000)) });
  },
  async many(queue, keys) {
    const begun = performance.now();
    await fill(queue, Number(keys));
    tell(queue, { figure: "many", per_s: Math.round(keys / ((performance.now() - begun) / 1000)) });
  },
  fill: (queue, keys) => fill(queue, Number(keys)),
  async work(queue) {
    const begun = now();
    let [done, last] = [0, begun];
    await queue.work(() => {
      done += 1;
      last = now();
    }, true);
    while (now() - last < 3) await sleep(10);
    tell(queue, { figure: "work", keys: done, begun, ended: last });
  },
  async latency(queue, keys) {
    let told;
    await queue.work(() => told(), false);
    await sleep(1000);
    const took = [];
    for (let n = 0; n < keys; n++) {
      await sleep(10);
      const ran = new Promise((resolve) => (told = () => resolve(performance.now())));
      const begun = performance.now();
      await queue.add(key(n));
      took.push((await ran) - begun);
    }
    took.sort((a, b) => a - b);
    const at = (part) => took[Math.floor((took.length - 1) * part)];
    tell(queue, { figure: "latency", p50_ms: at(0.5), p99_ms: at(0.99) });
  },
  async semantics(queue) {
    const gates = { b: gate(), c1: gate(), c2: gate() };
    let [runs, present, most, seen] = [0, 0, 0, 0];
    const second = gate();
    const handler = async (of) => {
      runs += 1;
      if (of === "b") {
        most = Math.max(most, ++present);
        await gates.b.opened;
        present -= 1;
      } else if (of === "c") {
        seen += 1;
        if (seen === 2) second.open();
        await gates[`c${seen}`]?.opened;
      }
    };
    for (let n = 0; n < 3; n++) await queue.add("a");
    await queue.work(handler, false);
    await sleep(4000);
    const before = runs;
    await queue.add("b");
    await sleep(4000);
    runs = 0;
    await queue.add("b");
    await queue.add("b");
    await sleep(4000);
    gates.b.open();
    await sleep(6000);
    const during = runs;

    let zombie;
    if (queue.main) {
      zombie = await zombieOfBoss(queue);
    } else {
      await queue.add("c");
      await sleep(1000);
      await queue.lapse();
      await queue.add("wakes");
      await Promise.race([second.opened, sleep(60_000)]);
      if (seen < 2) throw new Error("nobody took the job whose lock was over");
      gates.c1.open();
      await sleep(2000);
      zombie = (await queue.isGone("c")) ? "accepted" : "refused";
      gates.c2.open();
      await sleep(1000);
    }

    const [one, two] = [await queue.pool.connect(), await queue.pool.connect()];
    await one.query("begin");
    await two.query("begin");
    await queue.addIn(one, "x");
    await queue.addIn(two, "y");
    const both = Promise.allSettled([queue.addIn(one, "y"), queue.addIn(two, "x")]);
    const ended = await Promise.race([both, sleep(5000)]);
    let transactions = "both go on";
    if (!ended) transactions = "they wait for each other";
    const failed = ended?.find((it) => it.status === "rejected")?.reason;
    if (failed) transactions = failed.code === "40P01" ? "deadlock" : String(failed);
    tell(queue, { figure: "semantics", before: `${before}`, during: `${during}`, at_once: `${most}`, zombie, transactions });
    process.exit(0); // a transaction may hang
  },
};

// Two processes as their workers would: the first one's time is over, and the second has the job when the first ends it.
async function zombieOfBoss(queue) {
  const boss = queue.main;
  const end = async (attempt) => {
    const name = attempt ? "by-attempt" : "by-id";
    await boss.createQueue(name, { retryLimit: 5, retryDelay: 0, expireInSeconds: 1 });
    await boss.send(name, {});
    const [first] = await boss.fetch(name, { includeMetadata: true });
    await sleep(1500);
    await boss.supervise(name);
    let second;
    for (let n = 0; n < 60 && !second; n++) {
      [second] = (await boss.fetch(name, { includeMetadata: true })) ?? [];
      if (!second) {
        await sleep(1000);
        await boss.supervise(name);
      }
    }
    if (second?.id !== first.id) throw new Error("nobody got the job whose time was over");
    await boss.complete(name, attempt ? { id: first.id, retryCount: first.retryCount } : first.id);
    const { rows } = await queue.pool.query("select state from pgboss.job where id = $1", [first.id]);
    return rows[0].state === "completed" ? "accepted" : "refused";
  };
  return `${await end(true)} (by id alone: ${await end(false)})`;
}

const [kind, ...rest] = process.argv.slice(2);
const policy = kind === "pg-boss" ? rest.shift() : undefined;
const [connect, figure, ...args] = rest;
if (!["graphile-worker", "pg-boss"].includes(kind) || !figures[figure]) {
  console.error(usage);
  process.exit(2);
}
const queue = kind === "pg-boss" ? await boss(connect, policy) : await graphile(connect);
await figures[figure](queue, ...args);
await queue.stop();
process.exit(0);
