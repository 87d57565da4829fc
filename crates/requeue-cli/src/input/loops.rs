//! Detection of loops: programs whose runs cause the next ones, for ever. The program writes its own file, it
//! writes a file whose run writes the first again, or it writes its output beside its input, where it is
//! input again.
//!
//! A change belongs to the run during which it was made, by the file's time of change and not by when its
//! event is read, which can be long after. If several runs are under way, the likeliest is taken. That is no
//! proof: the guess can be wrong, and another program may write the file all the time, so that it changes
//! during each run too. So before a key is called a loop its next run is delayed, for twice the interval of
//! its runs. If the file is quiet all that time, and changes again as soon as the delayed run is made, no
//! other program writes it. Output beside input needs no such trial: names that grow with each run are proof
//! enough.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use memchr::memmem;

use crate::input::keys::Key;
use crate::text::show;

/// Number of runs of a key, each caused by the previous one, that start a trial.
const STREAK: u32 = 5;

/// Factor by which that number grows after a trial that found another writer.
const PATIENCE: u32 = 4;

/// Number of runs in a row, each for a file made by the previous one with a longer name, that are a loop.
const GROWTH: u32 = 4;

/// Maximum number of other keys in a loop.
const DETOUR: usize = 8;

/// Granularity of a file's time, that of the last tick of the kernel's clock: up to 10 ms.
const TICK: Duration = Duration::from_millis(10);

/// The shortest and the longest delay of a run.
const TRIAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Minimum number of ended runs, and of keys, that are remembered.
const RUNS: usize = 64;
const KEYS: usize = 1024;

/// How long a key is remembered after its last run or change, if there are many.
const MEMORY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Loops {
    seen: Mutex<History>,
    /// Tolerance by which a change of the run's own key may look older than the run and still belong to it.
    /// Less than the age of a trigger at its run, or the trigger would be taken for such a change.
    slack: Duration,
}

#[derive(Debug, Default)]
struct History {
    /// The current runs and the last ended ones, in the order of their starts.
    runs: VecDeque<Run>,
    keys: HashMap<Key, Past>,
    /// Number of keys from which old ones are removed.
    room: usize,
    growth_said: bool,
}

#[derive(Debug)]
struct Run {
    key: Key,
    began: SystemTime,
    ended: Option<SystemTime>,
    origin: Origin,
}

/// The chain of runs that caused a run.
#[derive(Clone, Debug, Default)]
struct Origin {
    /// Their keys, the last one last.
    keys: VecDeque<Key>,
    /// Number of times in a row that the name grew.
    grown: u32,
}

/// The source of a file's changes since its last run began.
#[derive(Debug)]
enum Writer {
    Unknown,
    Run(Origin),
    Other,
}

#[derive(Debug)]
struct Past {
    touched: SystemTime,
    writer: Writer,
    /// Number of runs up to the last one that the key's own runs caused, and when the first of them began.
    streak: u32,
    since: SystemTime,
    /// The streak that starts the next trial.
    wanted: u32,
    on_trial: bool,
    /// The previous run was delayed, and the file did not change meanwhile.
    was_quiet: bool,
    said: bool,
}

/// Decision on a key that was handed out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Run,
    /// Run it, and say this.
    Say(String),
    /// Delay it by this time, to see whether another program writes the file.
    PutOff(Duration),
}

impl Loops {
    /// For keys whose triggers are debounced by this time.
    pub(crate) fn new(debounce: Duration) -> Self {
        Self { seen: Mutex::default(), slack: debounce.min(TICK) }
    }

    /// Decides on a key that was handed out. Unless it is delayed, its run begins.
    pub(crate) fn begins(&self, key: &[u8], now: SystemTime) -> Turn {
        let mut history = self.seen();
        let history = &mut *history;
        let growth_said = &mut history.growth_said;
        let past = history.keys.entry(key.to_vec()).or_insert_with(|| Past::new(now));
        past.touched = now;
        let writer = std::mem::replace(&mut past.writer, Writer::Unknown);
        let mut turn = Turn::Run;
        let mut origin = Origin::default();
        let was_quiet = std::mem::take(&mut past.was_quiet);
        if std::mem::take(&mut past.on_trial) {
            match writer {
                Writer::Unknown => past.was_quiet = true,
                _ => past.wanted = past.wanted.saturating_mul(PATIENCE),
            }
            past.streak = 0;
        } else if let Writer::Run(found) = writer {
            origin = found;
            if !origin.keys.iter().any(|other| other == key) {
                past.streak = 0;
            } else {
                past.streak += 1;
                if was_quiet {
                    past.said = true;
                    turn = Turn::Say(said_of_streak(key, past.wanted));
                }
            }
            if past.streak >= past.wanted && !past.said {
                past.on_trial = true;
                let took = now.duration_since(past.since).unwrap_or_default() / past.streak;
                return Turn::PutOff((2 * took).clamp(TRIAL.0, TRIAL.1));
            }
            if origin.grown >= GROWTH && !std::mem::replace(growth_said, true) {
                turn = Turn::Say(said_of_growth(key, origin.keys.back()));
            }
        } else {
            past.streak = 0;
        }
        if past.streak == 0 {
            past.since = now;
        }
        history.runs.push_back(Run { key: key.to_vec(), began: now, ended: None, origin });
        history.forget_old_keys(now);
        turn
    }

    pub(crate) fn ends(&self, key: &[u8], now: SystemTime) {
        let mut history = self.seen();
        if let Some(run) = history.runs.iter_mut().rev().find(|run| run.ended.is_none() && run.key == key) {
            run.ended = Some(now);
        }
        let over = |run: &Run| run.ended.is_some();
        if history.runs.iter().filter(|run| over(run)).count() > RUNS {
            let oldest = history.runs.iter().position(over);
            oldest.map(|at| history.runs.remove(at));
        }
    }

    /// Records that the file was changed at this time.
    pub(crate) fn changed(&self, key: &[u8], at: SystemTime) {
        let mut history = self.seen();
        let writer = match history.writer(key, at, self.slack) {
            Some(origin) => Writer::Run(origin),
            None => Writer::Other,
        };
        match history.keys.get_mut(key) {
            Some(past) if matches!((&past.writer, &writer), (Writer::Unknown, _) | (_, Writer::Other)) => {
                past.writer = writer;
            }
            Some(_) => {}
            // Of a file that has had no run only its origin matters.
            None if matches!(writer, Writer::Run(_)) => {
                history.keys.insert(key.to_vec(), Past { writer, ..Past::new(at) });
            }
            None => {}
        }
    }

    fn seen(&self) -> MutexGuard<'_, History> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Past {
    fn new(now: SystemTime) -> Self {
        Self {
            touched: now,
            writer: Writer::Unknown,
            streak: 0,
            since: now,
            wanted: STREAK,
            on_trial: false,
            was_quiet: false,
            said: false,
        }
    }
}

impl History {
    /// The run that can have changed this file at this time, as the origin of the next.
    fn writer(&self, key: &[u8], at: SystemTime, slack: Duration) -> Option<Origin> {
        let on = |run: &&Run| {
            let slack = if run.key == key { slack } else { TICK };
            at + slack > run.began && run.ended.is_none_or(|ended| at <= ended)
        };
        let on: Vec<&Run> = self.runs.iter().filter(on).collect();
        let own = on.iter().find(|run| run.key == key);
        let grown = || on.iter().find(|run| grows(&run.key, key));
        let leads_here = || on.iter().find(|run| run.origin.keys.iter().any(|other| other == key));
        // One of them: where it is the wrong one, the trial finds no loop.
        let any = || on.first();
        let writer = own.or_else(grown).or_else(leads_here).or_else(any)?;
        let mut origin = writer.origin.clone();
        if origin.keys.len() == DETOUR {
            origin.keys.pop_front();
        }
        origin.keys.push_back(writer.key.clone());
        origin.grown = if grows(&writer.key, key) { origin.grown + 1 } else { 0 };
        Some(origin)
    }

    fn forget_old_keys(&mut self, now: SystemTime) {
        if self.keys.len() > self.room {
            let recent = |past: &Past| now.duration_since(past.touched).is_ok_and(|ago| ago < MEMORY);
            self.keys.retain(|_, past| past.on_trial || recent(past));
            self.room = KEYS.max(2 * self.keys.len());
        }
    }
}

/// Whether the output's name is made from the input's: longer, and with the input's name in it, or all of it
/// but its extension.
fn grows(input: &[u8], output: &[u8]) -> bool {
    let name = |path| memchr::memrchr(b'/', path).map_or(path, |at| &path[at + 1..]);
    let input_name = name(input);
    let stem = match memchr::memrchr(b'.', input_name) {
        Some(dot @ 1..) => &input_name[..dot],
        _ => input_name,
    };
    output.len() > input.len() && memmem::find(name(output), stem).is_some()
}

const ADVICE: &str = "this never ends (let it write elsewhere, or use --ignore)";

fn said_of_streak(key: &[u8], runs: u32) -> String {
    format!(
        "{}: changed during each of its last {runs} runs, or the runs that those brought about, and \
         never else: if the program writes the file itself {ADVICE}",
        show::key(key)
    )
}

fn said_of_growth(key: &[u8], input: Option<&Key>) -> String {
    format!(
        "{}: made while the program ran for {}, which was made in the same way: if the program's \
         output is its input again {ADVICE}",
        show::key(key),
        input.map(|input| show::key(input)).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + n)
    }

    /// Hands out keys in turn, every ten seconds, for a run of a second each; `changes` gives the files that
    /// they change, and how long after the hand-out. Returns the hand-outs at which a key was delayed, and
    /// those with a message.
    fn turns(
        keys: &[&str],
        rounds: u64,
        changes: impl Fn(u64) -> Vec<(&'static str, u64)>,
    ) -> (Vec<u64>, Vec<u64>) {
        let loops = Loops::new(TICK);
        let (mut put_off, mut said) = (Vec::new(), Vec::new());
        for n in 0..rounds {
            let key = keys[(n - put_off.len() as u64) as usize % keys.len()].as_bytes();
            match loops.begins(key, second(10 * n)) {
                Turn::Run => loops.ends(key, second(10 * n + 1)),
                Turn::Say(_) => {
                    said.push(n);
                    loops.ends(key, second(10 * n + 1));
                }
                Turn::PutOff(_) => put_off.push(n),
            }
            for (key, after) in changes(n) {
                // A run that did not begin changes nothing.
                if after > 1 || put_off.last() != Some(&n) {
                    loops.changed(key.as_bytes(), second(10 * n + after));
                }
            }
        }
        (put_off, said)
    }

    #[test]
    fn a_program_that_writes_its_own_file_is_put_off_once_and_then_told_of_once() {
        assert_eq!(turns(&["a"], 40, |_| vec![("a", 1)]), (vec![5], vec![7]));
    }

    #[test]
    fn a_loop_over_two_and_over_four_keys_is_told_of() {
        let ring = |n: u64| vec![(["a", "b"][(n + 1) as usize % 2], 1)];
        let (put_off, said) = turns(&["a", "b"], 20, ring);
        assert_eq!((put_off.len(), said.len()), (1, 1), "{put_off:?} {said:?}");
        let ring = |n: u64| vec![(["a", "b", "c", "d"][(n + 1) as usize % 4], 1)];
        let (put_off, said) = turns(&["a", "b", "c", "d"], 36, ring);
        assert_eq!((put_off.len(), said.len()), (1, 1), "{put_off:?} {said:?}");
    }

    /// `a` and `b`, and `c` and `d`, write each other's files, in runs of twenty seconds that begin every
    /// ten: at each change another run is under way too.
    #[test]
    fn loops_beside_each_other_are_told_of() {
        let loops = Loops::new(TICK);
        let rings = [["a", "b"], ["c", "d"]];
        let mut said = false;
        for n in 0..60 {
            let (ring, turn) = (rings[n % 2], n / 2);
            let (before, key) = (ring[(turn + 1) % 2].as_bytes(), ring[turn % 2].as_bytes());
            let now = second(10 * n as u64);
            if turn > 0 {
                loops.changed(key, now);
                loops.ends(before, now);
            }
            let mut turn = loops.begins(key, now);
            if matches!(turn, Turn::PutOff(_)) {
                turn = loops.begins(key, now);
            }
            said |= matches!(turn, Turn::Say(_));
        }
        assert!(said);
    }

    #[test]
    fn somebody_who_writes_for_a_while_is_no_loop() {
        let (put_off, said) = turns(&["a"], 40, |n| if n < 6 { vec![("a", 1)] } else { vec![] });
        assert_eq!((put_off, said), (vec![5], vec![]));
    }

    #[test]
    fn somebody_who_writes_all_the_time_is_no_loop() {
        let (put_off, said) = turns(&["a"], 200, |_| vec![("a", 1), ("a", 5)]);
        assert_eq!((put_off.len(), said.len()), (0, 0), "between the runs too");
        // By chance never between the runs, but then while the run is put off.
        let seldom = |n: u64| if n == 5 || n == 26 { vec![("a", 3)] } else { vec![("a", 1)] };
        assert_eq!(turns(&["a"], 40, seldom), (vec![5, 26], vec![]));
    }

    #[test]
    fn changes_with_pauses_are_no_loop() {
        let (put_off, said) = turns(&["a"], 100, |n| if n % 5 == 0 { vec![] } else { vec![("a", 1)] });
        assert_eq!((put_off.len(), said.len()), (0, 0));
    }

    #[test]
    fn output_beside_its_input_is_told_of_once() {
        let loops = Loops::new(TICK);
        let mut said = Vec::new();
        for picture in ["p", "q"] {
            let mut key = format!("{picture}.jpg");
            loops.changed(key.as_bytes(), second(0));
            for n in 0..8 {
                if let Turn::Say(text) = loops.begins(key.as_bytes(), second(10 * n)) {
                    said.push((n, text));
                }
                // Another program is busy with another key all the while.
                if n == 0 {
                    loops.begins(b"other", second(0));
                }
                let next = format!("{}.thumb.jpg", key.strip_suffix(".jpg").unwrap());
                loops.changed(next.as_bytes(), second(10 * n + 1));
                loops.ends(key.as_bytes(), second(10 * n + 2));
                key = next;
            }
        }
        assert_eq!(said.len(), 1, "{said:?}");
        let (n, text) = &said[0];
        assert_eq!(*n, 4);
        assert!(text.starts_with("p.thumb.thumb.thumb.thumb.jpg: made while"), "{text}");
    }

    #[test]
    fn files_that_come_one_after_the_other_from_outside_are_no_loop() {
        let loops = Loops::new(TICK);
        for n in 0..100 {
            let key = format!("IMG_{n}.jpg");
            assert_eq!(loops.begins(key.as_bytes(), second(10 * n)), Turn::Run);
            loops.changed(format!("IMG_{}.jpg", n + 1).as_bytes(), second(10 * n + 1));
            loops.ends(key.as_bytes(), second(10 * n + 2));
        }
    }

    #[test]
    fn old_runs_are_forgotten() {
        let loops = Loops::new(TICK);
        for n in 0..100_000u64 {
            let key = n.to_string().into_bytes();
            loops.begins(&key, second(n));
            loops.changed(&key, second(n));
            loops.ends(&key, second(n));
        }
        let history = loops.seen();
        assert!(history.keys.len() <= 2 * KEYS && history.runs.len() <= RUNS + 1);
    }
}
