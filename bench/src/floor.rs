//! What W1 costs at the very least with one lock and one hash table.

use crate::keys::keys;
use crate::measure::{Spent, Stopwatch};
use crate::{Args, Key, Line, Usage};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::BuildHasher;

/// The name under which it is measured.
pub const NAME: &str = "requeue";

/// Reads the parameters and measures. An operation is three pairs of lock and
/// unlock, and in them an insert and a push, a pop, and a remove. The key is
/// hashed once, is neither stored nor compared, and is dropped at the end.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn run(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => measure::<u64>(n),
        _ => measure::<String>(n),
    };
    Ok(Line::spent(NAME, "w1floor", params, n as u64, spent))
}

#[derive(Default)]
struct State {
    known: HashTable<(u64, usize)>,
    line: VecDeque<(u64, usize)>,
}

fn measure<K: Key>(n: usize) -> Spent {
    let (state, hasher) = (Mutex::new(State::default()), RandomState::default());
    let keys = keys::<K>(0, n);
    let watch = Stopwatch::start();
    for (i, key) in keys.into_iter().enumerate() {
        let entry = (hasher.hash_one(&key), i);
        {
            let mut state = state.lock();
            state.known.insert_unique(entry.0, entry, |(hash, _)| *hash);
            state.line.push_back(entry);
        }
        let next = state.lock().line.pop_front();
        if let Some((hash, i)) = next {
            let mut state = state.lock();
            if let Ok(entry) = state.known.find_entry(hash, |(_, j)| *j == i) {
                entry.remove();
            }
        }
    }
    watch.stop()
}
