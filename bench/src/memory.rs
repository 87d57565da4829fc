//! Bytes per ready key.

use crate::cycle::ready;
use crate::keys::keys;
use crate::measure::{allocations, rss_bytes};
use crate::{Args, Fifo, Key, Line, Usage};
use std::time::Instant;

/// Reads the parameters and measures.
///
/// `bytes_per_key`: what the process's resident memory grew by as the keys were
/// added, plus what strings had on the heap before, since the queue owns them
/// now. `above_key_bytes`: the same without that heap and without the 24 bytes
/// of a `String` itself (for `u64` the whole). `after_bytes_per_key`: what is
/// still allocated when all are done.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<U: Fifo<Key = u64>, S: Fifo<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    Ok(match key {
        "u64" => measure::<U>(params, n),
        _ => measure::<S>(params, n),
    })
}

fn measure<Q: Fifo>(params: String, n: usize) -> Line {
    let per_key = |bytes: i64| bytes as f64 / n as f64;
    let handle = size_of::<Q::Key>() as f64;
    let at_first = rss_bytes();
    let mut keys = keys::<Q::Key>(0, n);
    let heap = Q::Key::ON_HEAP as f64;
    // with what the allocator adds
    let heap_rss = if heap > 0.0 { per_key(rss_bytes() - at_first) - handle } else { 0.0 };
    let q = Q::new();
    let (rss, allocated) = (rss_bytes(), allocations());
    let start = Instant::now();
    // leaves the vector's memory where it is
    keys.drain(..).for_each(|key| q.add(key));
    let wall = start.elapsed();
    let grown = rss_bytes() - rss;
    let asked_for = allocated.bytes();
    for _ in 0..n {
        q.done(ready(&q));
    }
    let mut line = Line::new(Q::NAME, "memory", params, n as u64, wall);
    line.rss_bytes_delta = Some(grown);
    line.bytes_per_key = Some(per_key(grown) + heap_rss);
    let above = if heap > 0.0 { per_key(grown) - handle } else { per_key(grown) };
    line.extra.insert("above_key_bytes", above);
    line.extra.insert("alloc_bytes_per_key", per_key(asked_for) + heap);
    line.extra.insert("after_bytes_per_key", per_key(allocated.bytes()) + heap);
    line.extra.insert("after_rss_bytes_per_key", per_key(rss_bytes() - rss) + heap_rss);
    drop(keys);
    line
}
