//! A process that works, as the trial sees it.

use crate::{Counts, LEASE, LONG, client, dropped, random};
use requeue::{BoxError, Outcome, Run, Worker};
use requeue_postgres::{Postgres, Queue, RunExt};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const CONNECT: &str = "REQUEUE_FAULTS_CONNECT";
const KILLED: &str = "REQUEUE_FAULTS_KILLED";
/// Prefix of a fault's name in a worker's output.
const FAULT: &str = "fault: ";

fn tell(fault: &str) {
    println!("{FAULT}{fault}");
}

/// Connections of handlers. A broken one is not used again.
#[derive(Clone)]
struct Pool {
    connect: String,
    idle: Arc<Mutex<Vec<Client>>>,
}

impl Pool {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.idle.lock().expect("no panic")
    }

    async fn take(&self) -> Result<Client, BoxError> {
        let idle = self.idle().pop();
        match idle.filter(|it| !it.is_closed()) {
            Some(idle) => Ok(idle),
            None => client(&self.connect).await,
        }
    }
}

/// A handler, shared by its runs.
#[derive(Clone)]
struct Handler {
    pool: Pool,
    seed: Arc<AtomicU64>,
    dies: bool,
}

impl Handler {
    fn die(&self, step: u32) {
        if self.dies && random(&self.seed) % 100 == 0 {
            tell(&format!("process killed at step {step} of a run"));
            drop(Command::new("kill").args(["-9", &std::process::id().to_string()]).status());
            std::thread::sleep(LONG);
        }
    }

    async fn runs(self, run: Run<String>) -> Result<Outcome, BoxError> {
        self.die(1);
        let mut db = self.pool.take().await?;
        let outcome = self.runs_on(&mut db, &run).await;
        self.pool.idle().push(db);
        outcome
    }

    async fn runs_on(&self, db: &mut Client, run: &Run<String>) -> Result<Outcome, BoxError> {
        let fence = i64::try_from(run.fence().0)?;
        let sum = "select coalesce(sum(v), 0)::bigint from world where key = $1";
        let v: i64 = db.query_one(sum, &[run.key()]).await?.get(0);
        self.die(2);
        let tx = db.transaction().await?;
        run.guard(&tx).await?;
        let write = "insert into effect(key, v, fence) values ($1, $2, $3)";
        tx.execute(write, &[run.key(), &v, &fence]).await?;
        self.die(3);
        if random(&self.seed) % 50 == 0 {
            let commits = random(&self.seed) % 2 == 0;
            if dropped(&self.seed, run.succeed_in(&tx)).await.is_none() {
                tell("future of a run's end dropped");
                // the end is part of the transaction, or not
                if commits {
                    tx.commit().await?;
                }
                return Err("its end was dropped".into());
            }
            tx.commit().await?;
        } else if v % 2 == 0 {
            let ended = run.succeed_in(&tx).await?;
            self.die(4);
            tx.commit().await?;
            self.die(5);
            let _ = ended;
        } else {
            tx.commit().await?;
            self.die(6);
        }
        Ok(Outcome::Done)
    }
}

/// The main function of a process that works.
pub(crate) fn works() {
    let Ok(connect) = std::env::var(CONNECT) else { return };
    let seed = Arc::new(AtomicU64::new(u64::from(std::process::id())));
    let pool = Pool { connect: connect.clone(), idle: Arc::default() };
    let handler = Handler { pool, seed: seed.clone(), dies: std::env::var_os(KILLED).is_some() };
    let (gone, parent_is_gone) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        drop(std::io::stdin().read_line(&mut String::new()));
        let _ = gone.send(());
        // wherever it hangs, if the server is gone too
        std::thread::sleep(LEASE * 5);
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async move {
        let pg = loop {
            match Postgres::connect(&connect).await {
                Ok(pg) => break pg,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let q: Queue<String> = loop {
            let opens = pg.queue("faults").lease(LEASE).prefetch(2).backoff(LEASE / 200, LEASE);
            match opens.open().await {
                Ok(q) => break q,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let runs = move |run: Run<String>| handler.clone().runs(run);
        let worker = Worker::of(&q).workers(4).start_on(tokio::runtime::Handle::current(), runs);
        let worker = worker.expect("tasks");
        let gets = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(random(&seed) % 2000)).await;
                match dropped(&seed, q.get()).await {
                    None => tell("future of a get dropped"),
                    Some(None) => break,
                    Some(Some(item)) => {
                        tell("item dropped without a word");
                        drop(item);
                    }
                }
            }
        });
        let _ = parent_is_gone.await;
        gets.abort();
        worker.stop(Duration::from_secs(2)).await;
    });
}

/// A network namespace that acts as a machine: its name, and its address for this one.
pub(crate) type Machine = (String, String);

/// A process that works.
pub(crate) struct Process {
    child: Child,
    /// It kills itself now and then.
    pub(crate) dies: bool,
    pub(crate) machine: Option<Machine>,
    said: Option<std::thread::JoinHandle<()>>,
    /// Since when it is stopped.
    stopped: Option<Instant>,
}

impl Process {
    pub(crate) fn start(connect: &str, machine: Option<Machine>, dies: bool, counts: Counts) -> Self {
        let test = std::env::current_exe().expect("a test");
        let mut command = match &machine {
            None => Command::new(test),
            Some((name, _)) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(test);
                command
            }
        };
        command
            .args(["--exact", "worker", "--ignored", "--nocapture", "--test-threads=1"])
            .env(CONNECT, connect);
        if dies {
            command.env(KILLED, "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Some((_, fault)) = line.split_once(FAULT) {
                    counts.add(fault);
                }
            }
        });
        Self { child, dies, machine, said: Some(said), stopped: None }
    }

    fn signal(&self, signal: &str) {
        // it may be gone
        drop(
            Command::new("kill").args([signal, &self.child.id().to_string()]).stderr(Stdio::null()).status(),
        );
    }

    pub(crate) fn is_gone(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Stops it for this time: [`goes_on`](Self::goes_on) ends that.
    pub(crate) fn stops(&mut self, time: Duration) {
        self.signal("-STOP");
        self.stopped = Some(Instant::now() + time);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Continues it if it was stopped for long enough.
    pub(crate) fn goes_on(&mut self) {
        if self.stopped.is_some_and(|until| until <= Instant::now()) {
            self.signal("-CONT");
            self.stopped = None;
        }
    }

    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
    }

    /// Ends it, and waits for the last fault that it reports.
    pub(crate) fn ends(mut self) {
        self.kill();
        if let Some(said) = self.said.take() {
            said.join().expect("no panic");
        }
    }
}

impl Drop for Process {
    /// Kills it even if a test fails: a stopped process would not notice.
    fn drop(&mut self) {
        self.kill();
        drop(self.child.wait());
    }
}
