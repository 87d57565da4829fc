//! The queue's behaviour with three adds of a key, two during its run, the end of a run whose lease is over,
//! and two transactions that trigger the same keys in opposite order.

use crate::Res;
use requeue::{Add, Run, Worker};
use requeue_postgres::Status;
use requeue_postgres::{Postgres, Queue};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

const LEASE: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_secs(60);

/// Handlers wait for it.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().expect("no panic") = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().expect("no panic"), |open| !*open));
    }
}

fn open(pg: &Postgres) -> Res<Queue<String>> {
    Ok(pg.queue("semantics").lease(LEASE).open().wait()?)
}

fn until(what: &str, mut is: impl FnMut() -> bool) -> Res {
    let begun = Instant::now();
    while !is() {
        if begun.elapsed() > LONG {
            return Err(format!("{what} does not come").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(crate) fn semantics(pg: &Postgres, connect: &str) -> Res {
    let rest = || std::thread::sleep(Duration::from_secs(3));
    let q = open(pg)?;
    for _ in 0..3 {
        q.add("a".into()).wait()?;
    }
    let (runs, present, most) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let gate = Arc::new(Gate::default());
    let (counts, passes, peak) = (runs.clone(), gate.clone(), most.clone());
    let worker = Worker::of(&q).workers(4).start_threads(move |run: Run<String>| {
        counts.fetch_add(1, Relaxed);
        if run.key() == "b" {
            peak.fetch_max(present.fetch_add(1, Relaxed) + 1, Relaxed);
            passes.pass();
            present.fetch_sub(1, Relaxed);
        }
    })?;
    rest();
    let before = runs.swap(0, Relaxed);
    q.add("b".into()).wait()?;
    until("the run of b", || runs.load(Relaxed) == 1)?;
    q.add("b".into()).wait()?;
    q.add("b".into()).wait()?;
    rest();
    gate.open();
    rest();
    let during = runs.load(Relaxed) - 1;
    worker.stop(LONG).wait();
    drop(q);

    let zombie = if zombie_is_refused(pg, connect)? { "refused" } else { "accepted" };
    let transactions = transactions(pg, connect)?;
    let at_once = most.load(Relaxed);
    println!(
        "{{\"queue\":\"requeue-postgres\",\"figure\":\"semantics\",\"before\":\"{before}\",\"during\":\"{during}\",\
         \"at_once\":\"{at_once}\",\"zombie\":\"{zombie}\",\"transactions\":\"{transactions}\"}}"
    );
    Ok(())
}

/// Another process takes a key, and is stopped for longer than its lease; this one has the key by the time
/// the other ends it.
fn zombie_is_refused(pg: &Postgres, connect: &str) -> Res<bool> {
    pg.client("semantics").add_many(&["c".to_owned()], None, 0).wait()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([connect, "zombie"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut said = BufReader::new(stdout.ok_or("it is piped")?).lines();
    said.next().ok_or("it has begun")??;
    let id = child.id().to_string();
    let signal = |signal: &str| Command::new("kill").args([signal, &id]).status().map(drop);
    signal("-STOP")?;
    let q = open(pg)?;
    let (gate, began) = (Arc::new(Gate::default()), Arc::new(AtomicU64::new(0)));
    let (passes, counts) = (gate.clone(), began.clone());
    let worker = Worker::of(&q).workers(1).start_threads(move |_: Run<String>| {
        counts.fetch_add(1, Relaxed);
        passes.pass();
    })?;
    until("the second run", || began.load(Relaxed) == 1)?;
    signal("-CONT")?;
    stdin.take().ok_or("it is piped")?.write_all(b"end\n")?;
    // whatever it has to say of its run is said by then
    drop(child.wait());
    let holds = q.state(&"c".into()).wait()?.is_some_and(|it| it.status == Status::Held);
    gate.open();
    worker.stop(LONG).wait();
    Ok(holds)
}

/// The process of the zombie.
pub(crate) fn zombie(pg: &Postgres) -> Res {
    let q = open(pg)?;
    let (tell, ended) = std::sync::mpsc::channel();
    let worker = Worker::of(&q).workers(1).start_threads(move |_: Run<String>| {
        println!("begun");
        drop(std::io::stdin().read_line(&mut String::new()));
        let _ = tell.send(());
    })?;
    ended.recv()?;
    worker.stop(LONG).wait();
    Ok(())
}

fn transactions(pg: &Postgres, connect: &str) -> Res<&'static str> {
    let q = open(pg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut one, first) = tokio_postgres::connect(connect, NoTls).await?;
        let (mut two, second) = tokio_postgres::connect(connect, NoTls).await?;
        tokio::spawn(first);
        tokio::spawn(second);
        let (one, two) = (one.transaction().await?, two.transaction().await?);
        q.add_in(&one, "x".into(), Add::now()).await?;
        q.add_in(&two, "y".into(), Add::now()).await?;
        let both = async {
            let ended =
                tokio::join!(q.add_in(&one, "y".into(), Add::now()), q.add_in(&two, "x".into(), Add::now()));
            ended.0.and(ended.1)
        };
        Ok(match tokio::time::timeout(Duration::from_secs(5), both).await {
            Err(_) => "they wait for each other",
            Ok(Ok(())) => "both go on",
            Ok(Err(_)) => "one fails",
        })
    })
}
