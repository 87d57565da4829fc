//! Orders that time out unless they are paid, in a shop whose power is cut: the process that takes orders is
//! killed twice in the middle of its work, with `kill -9`, and another one continues with its file. Each
//! unpaid order is closed, none of them early; a payment cancels the order's timer (`cancel`).
//!
//! ```text
//! cargo run --release -p requeue-examples --example order_timeouts_durable
//! ```
//!
//! It prints the results of the orders (thirty minutes are three seconds here):
//!
//! ```text
//! order 00  o------p
//! order 01   o--------------########------------------x
//! order 02    o-------------########-------------------x
//! order 03      o------p
//! order 04       o----------########--------------------########-x
//! o made   p paid   x closed   # no power
//! ```

use requeue::{BoxError, Run, Worker};
use requeue_sqlite::Sqlite;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Res<T = ()> = Result<T, BoxError>;

const ORDERS: u32 = 24;
/// Milliseconds between two orders.
const EACH: u64 = 100;
/// Time until a customer pays, if at all.
const PAYS_AFTER: u64 = 500;
/// Environment variable that makes this process the shop, and names its file.
const SHOP: &str = "REQUEUE_EXAMPLE_SHOP";

/// Time that an order waits for its payment.
fn time_out() -> u64 {
    if std::env::var_os("REQUEUE_EXAMPLE_FAST").is_some() { 1000 } else { 3000 }
}

fn pays(order: u32) -> bool {
    order % 3 == 0
}

/// The time, in milliseconds since 1970.
fn now() -> Res<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn main() -> Res {
    match std::env::var_os(SHOP) {
        Some(dir) => shop(dir.as_ref()),
        None => cut_the_power(),
    }
}

/// The shop's books: a line for each event of an order. They survive too, and show where to continue.
fn write_down(books: &Path, what: &str, order: u32) -> Res {
    let line = format!("{} {what} {order}\n", now()?);
    Ok(File::options().create(true).append(true).open(books)?.write_all(line.as_bytes())?)
}

/// The time of each event of each order.
fn read(books: &Path) -> Res<BTreeMap<(u32, String), u64>> {
    let mut read = BTreeMap::new();
    for line in fs::read_to_string(books).unwrap_or_default().lines() {
        if let [at, what, order] = line.split(' ').collect::<Vec<_>>()[..] {
            read.entry((order.parse()?, what.to_owned())).or_insert(at.parse()?);
        }
    }
    Ok(read)
}

/// Takes orders and payments, and closes what is due. It is killed at some moment, or ends when all is done.
fn shop(dir: &Path) -> Res {
    let books = dir.join("books");
    let q = Sqlite::open(dir.join("shop.db"))?.queue::<u32>("orders to close").open()?;
    // Locked while the books are read and written.
    let pen = Arc::new(Mutex::new(()));
    // An order that was written down as made just before the power went may not be in the queue. Adding it
    // twice does no harm.
    for ((order, what), made) in read(&books)? {
        if what == "made" {
            let left = (made + time_out()).saturating_sub(now()?);
            q.add_after(order, Duration::from_millis(left)).wait()?;
        }
    }
    let (its_books, its_pen) = (books.clone(), pen.clone());
    let worker = Worker::of(&q).workers(2).start_threads(move |run: Run<u32>| -> Res {
        // The books say whether it was paid: the key says only that it is to be looked at.
        let order = *run.key();
        let _pen = its_pen.lock();
        let read = read(&its_books)?;
        if !read.contains_key(&(order, "paid".into())) && !read.contains_key(&(order, "closed".into())) {
            write_down(&its_books, "closed", order)?;
        }
        Ok(())
    })?;
    let mut open: Vec<u32> = (0..ORDERS).collect();
    while !open.is_empty() {
        let held = pen.lock();
        let (read, now) = (read(&books)?, now()?);
        let at = |order: u32, what: &str| read.get(&(order, what.to_owned())).copied();
        let last = read.keys().map(|(order, _)| *order + 1).max().unwrap_or(0);
        let newest = read.iter().filter(|((_, what), _)| what == "made").map(|(_, at)| *at).max();
        if last < ORDERS && newest.is_none_or(|newest| now >= newest + EACH) {
            write_down(&books, "made", last)?;
            q.add_after(last, Duration::from_millis(time_out())).wait()?;
        }
        for order in open.iter().copied().filter(|order| pays(*order) && at(*order, "paid").is_none()) {
            if at(order, "made").is_some_and(|made| now >= made + PAYS_AFTER) && at(order, "closed").is_none()
            {
                write_down(&books, "paid", order)?;
                q.cancel(&order).wait()?;
            }
        }
        open.retain(|order| at(*order, "paid").is_none() && at(*order, "closed").is_none());
        drop(held);
        std::thread::sleep(Duration::from_millis(5));
    }
    worker.stop(Duration::from_secs(10)).wait();
    Ok(())
}

/// Starts the shop, kills it twice, and looks into its books in the end.
fn cut_the_power() -> Res {
    let dir = std::env::temp_dir().join(format!("requeue-shop-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let shop = || Command::new(std::env::current_exe()?).env(SHOP, &dir).spawn();
    let mut cuts = Vec::new();
    for lasts in [time_out() * 4 / 10, time_out() / 2] {
        let mut running = shop()?;
        std::thread::sleep(Duration::from_millis(lasts));
        running.kill()?; // kill -9
        running.wait()?;
        let from = now()?;
        std::thread::sleep(Duration::from_millis(time_out() / 5));
        cuts.push((from, now()?));
    }
    assert!(shop()?.wait()?.success());

    let books = read(&dir.join("books"))?;
    fs::remove_dir_all(&dir)?;
    let begin = books.values().min().copied().unwrap_or(0);
    for order in 0..ORDERS {
        let at = |what: &str| books.get(&(order, what.to_owned())).copied();
        let made = at("made").ok_or("an order is missing")?;
        let (end, sign) = match (at("paid"), at("closed")) {
            (Some(paid), None) => (paid, 'p'),
            (None, Some(closed)) => (closed, 'x'),
            other => return Err(format!("order {order}: {other:?}").into()),
        };
        assert!(sign == 'p' || end >= made + time_out(), "it was closed early");
        assert!(sign == 'x' || pays(order), "it was not paid");
        let step = time_out() / 40;
        let is_dark = |at: u64| cuts.iter().any(|(from, to)| (*from..*to).contains(&at));
        let line: String = (begin..end)
            .step_by(usize::try_from(step)?)
            .map(|at| match at {
                _ if at + step <= made => ' ',
                _ if at <= made => 'o',
                _ if is_dark(at) => '#',
                _ => '-',
            })
            .collect();
        println!("order {order:02}  {line}{sign}");
    }
    println!("o made   p paid   x closed   # no power");
    Ok(())
}
