//! Who writes: many callers share one transaction, and a caller that is alone writes its own.
//!
//! ```text
//!   a call: push a trigger, note who is to be told       an end of a run: note what is known of its key
//!      └─► wait: is nobody writing?  ──yes──► write all that is noted, tell everybody
//!                     └──no──► sleep until told: the committer writes when who writes now is done
//! ```
//!
//! One at a time has the store. Whoever has it takes all that is noted, writes it in one transaction, and then tells
//! each trigger that it is written, in the order of their tickets: only then it is given to the queue in memory, and
//! only after that its caller hears of it. So the queue in memory never knows of a trigger that is not on the disk.

use crate::bell::Bell;
use crate::letters::{self, Letter};
use crate::rows::{EndRow, Place, TriggerRow};
use crate::store::{Failed, Group, Store};
use requeue::{BoxError, EngineError};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends of runs wait so long for a trigger whose transaction takes them along. A run whose end was not written runs
/// again if the process dies.
const ENDS_WAIT: Duration = Duration::from_millis(10);
/// Runs are shown to others when they last longer than this.
const SHOWS: Duration = Duration::from_millis(50);
/// After a failed transaction it is tried again so much later, if no trigger comes.
const TRIES_AGAIN: Duration = Duration::from_millis(200);
/// At most so many triggers are written at once, so that nobody waits for an endless transaction.
const MOST: usize = 4096;

/// The letters of other processes are looked for so often where there is no bell: a look reads a number in shared memory.
const LOOKS: Duration = Duration::from_millis(20);
/// Where there is one, as whoever wrote a letter may have died before it rang.
const LOOKS_WITH_BELL: Duration = Duration::from_secs(1);

/// What is to be done when a trigger is written, or is not. It must not panic.
pub(crate) type Told = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// A queue of this process, as the letters of other processes come to it.
pub(crate) trait Intake: Send + Sync {
    /// A trigger that is to be written, and who is told when it is.
    fn trigger(self: Arc<Self>, letter: &Letter, ticket: u64) -> Result<(TriggerRow, Told), EngineError>;

    /// Makes one trigger for now out of two of a key: so no run begins between them. False if that can't be.
    fn join(&self, first: &mut Letter, later: &Letter) -> bool;

    /// Whether it takes no more.
    fn is_shut_down(&self) -> bool;

    /// Does what the letter asks for in memory, and answers. Also whether the file alone is to do it as well.
    fn obey(&self, letter: &Letter) -> Obeyed;

    /// Shows others which keys run. True if some have begun so lately that they are not shown yet.
    fn show_runs(&self, store: &Store) -> bool;

    /// Others have the queue or its file: it hands nothing out from now on.
    fn lose(&self);
}

/// A letter, and its queue if that is open.
type Routed = (Letter, Option<Arc<dyn Intake>>);

/// Letters with their answers; one that has none is done with.
type Answered = Vec<(i64, Option<String>)>;

/// What has become of a letter.
pub(crate) enum Obeyed {
    /// It is done.
    Answer(String),
    /// A trigger for now is to be written for it, and then this is the answer.
    Trigger(String),
    /// The file does the rest.
    InFile,
}

/// Whoever has one of these may write. When the last one goes, what is noted is written and the file is closed.
pub(crate) struct Writer {
    desk: Arc<Desk>,
    /// Other processes ring it when they have written letters.
    bell: Option<Bell>,
    committer: Option<JoinHandle<()>>,
}

/// What writers and the committer share.
struct Desk {
    noted: Mutex<Noted>,
    store: Mutex<Store>,
    /// The queues that are open, by their numbers.
    intakes: Mutex<HashMap<i64, Weak<dyn Intake>>>,
    /// Queues that nobody of this process has any more, and that it lets go of when all is written.
    leaving: Mutex<Vec<i64>>,
    /// Why the last group was not written.
    trouble: Mutex<Option<String>>,
    lost: OnceLock<String>,
    wake: Wake,
}

#[derive(Default)]
struct Noted {
    group: Group,
    /// Who is told of each trigger.
    told: Vec<Told>,
    /// Who is told when the ends are written that are noted.
    waits: Vec<Told>,
    tickets: u64,
}

/// What the committer sleeps on.
#[derive(Default)]
struct Wake {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    #[default]
    Nothing,
    /// Keys have begun to run.
    Shown,
    /// Ends are noted.
    Soon,
    /// A caller waits.
    Now,
    /// The last writer is gone.
    Ends,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panics in a hold is caught, or leaves what is noted whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// # Errors
    ///
    /// If the system can't start the committer.
    pub(crate) fn start(path: &Path, store: Store) -> std::io::Result<Arc<Self>> {
        let desk = Desk {
            noted: Mutex::default(),
            store: Mutex::new(store),
            intakes: Mutex::default(),
            leaving: Mutex::default(),
            lost: OnceLock::new(),
            trouble: Mutex::default(),
            wake: Wake::default(),
        };
        let desk = Arc::new(desk);
        let rung = desk.clone();
        let bell = Bell::hang(path, move || rung.wake.ask(Asked::Now));
        let looks = if bell.is_some() { LOOKS_WITH_BELL } else { LOOKS };
        let committer = desk.clone();
        let thread = std::thread::Builder::new().name("requeue-sqlite".into());
        let committer = Some(thread.spawn(move || committer.commits(looks))?);
        Ok(Arc::new(Self { desk, bell, committer }))
    }

    /// The store, for what concerns no group.
    pub(crate) fn with_store<R>(&self, call: impl FnOnce(&mut Store) -> R) -> R {
        call(&mut lock(&self.desk.store))
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.desk.trouble).clone()
    }

    /// Why this process works on the file no longer.
    pub(crate) fn lost(&self) -> Option<String> {
        self.desk.lost.get().cloned()
    }

    /// Reads what the file has of a queue, and the letters to it come to it from then on: nobody writes between the two,
    /// or a letter would be in the file alone. `read` returns the last place in its line.
    pub(crate) fn take_in(
        &self,
        queue: i64,
        intake: Weak<dyn Intake>,
        read: impl FnOnce(&mut Store) -> Result<u64, EngineError>,
    ) -> Result<(), EngineError> {
        let mut store = lock(&self.desk.store);
        let last = read(&mut store)?;
        let mut noted = lock(&self.desk.noted);
        noted.tickets = noted.tickets.max(last);
        drop(noted);
        lock(&self.desk.intakes).insert(queue, intake);
        store.look_again();
        drop(store);
        self.ask();
        Ok(())
    }

    /// Nobody of this process has the queue any more. It lets go of it when all is written.
    pub(crate) fn leave(&self, queue: i64) {
        lock(&self.desk.leaving).push(queue);
        self.lead();
        self.ask();
    }

    /// A key has begun to run.
    pub(crate) fn shows_soon(&self) {
        self.desk.wake.ask(Asked::Shown);
    }

    /// Notes a trigger, which gets its ticket. It is written when somebody [leads](Self::lead) or the committer is
    /// [asked](Self::ask).
    pub(crate) fn push(&self, mut trigger: TriggerRow, told: impl FnOnce(u64) -> Told) {
        let mut noted = lock(&self.desk.noted);
        noted.tickets += 1;
        trigger.ticket = noted.tickets;
        let told = told(trigger.ticket);
        noted.group.triggers.push(trigger);
        noted.told.push(told);
    }

    /// Notes what is known of a key at the end of a run. `image` gets its ticket.
    pub(crate) fn push_end(&self, place: Place, end: impl FnOnce(u64) -> EndRow) {
        let mut noted = lock(&self.desk.noted);
        noted.tickets += 1;
        let end = end(noted.tickets);
        let first = noted.group.ends.is_empty();
        noted.group.ends.insert(place, end);
        drop(noted);
        if first {
            self.desk.wake.ask(Asked::Soon);
        }
    }

    /// Notes that a queue is paused from now on, or not any more.
    pub(crate) fn push_pause(&self, queue: i64, paused: bool) {
        lock(&self.desk.noted).group.paused.insert(queue, paused);
    }

    /// Notes that a key does not come again after its runs any more.
    pub(crate) fn push_unscheduled(&self, place: Place) {
        lock(&self.desk.noted).group.unscheduled.push(place);
        self.desk.wake.ask(Asked::Soon);
    }

    /// Notes that a key can't be run, and why.
    pub(crate) fn push_dead(&self, place: Place, why: String) {
        lock(&self.desk.noted).group.dead.push((place, why));
        self.desk.wake.ask(Asked::Soon);
    }

    /// Notes who is told when the ends are written that were noted before.
    pub(crate) fn push_wait(&self, told: Told) {
        lock(&self.desk.noted).waits.push(told);
    }

    /// The committer is to write what is noted.
    pub(crate) fn ask(&self) {
        self.desk.wake.ask(Asked::Now);
    }

    /// Writes what is noted, if nobody writes now; otherwise whoever does sees to it that it is written.
    pub(crate) fn lead(&self) {
        let store = match self.desk.store.try_lock() {
            Ok(store) => store,
            Err(std::sync::TryLockError::Poisoned(store)) => store.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return,
        };
        self.desk.commit(store);
        // who came meanwhile found the store taken
        if self.desk.is_asked() {
            self.ask();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.bell.take());
        self.desk.wake.ask(Asked::Ends);
        // so that the file is closed when the last handle is gone
        let committer = self.committer.take().filter(|it| it.thread().id() != std::thread::current().id());
        if let Some(committer) = committer {
            drop(committer.join());
        }
    }
}

impl Desk {
    fn is_asked(&self) -> bool {
        let noted = lock(&self.noted);
        !(noted.group.triggers.is_empty() && noted.waits.is_empty())
    }

    /// Writes one group, and tells everybody. False if it was not written, or letters could not be read.
    fn commit(&self, mut store: MutexGuard<'_, Store>) -> bool {
        let is_written = self.commit_group(&mut store);
        if is_written && self.is_empty() {
            for queue in std::mem::take(&mut *lock(&self.leaving)) {
                store.leave(queue);
            }
        }
        is_written
    }

    fn commit_group(&self, store: &mut Store) -> bool {
        // What is added to a queue that takes no more was accepted all the same: it stays in the inbox until the queue is
        // opened again. In its row it would not be safe: the queue in memory does not know of it, and may end a run of the
        // same key.
        let closed = self.closed();
        let has_letters = store.has_letters(&closed);
        let is_read = has_letters.is_ok();
        if matches!(has_letters, Ok(false)) && self.is_empty() && store.lost().is_none() {
            let waits = std::mem::take(&mut lock(&self.noted).waits);
            waits.into_iter().for_each(|told| told(Ok(())));
            return true;
        }
        if let Err(e) = store.begin() {
            store.look_again();
            let (group, mut told, waits) = self.next_group(Vec::new(), Answered::new());
            told.extend(waits);
            return self.failed(store, group, told, e);
        }
        // Now, as others can't write any more: what they were told is accepted is seen by whoever is handed out next.
        let letters = store.letters(&closed);
        let is_read = is_read && letters.is_ok();
        let mut letters = letters.unwrap_or_default();
        // What asks for no trigger is done at once, and triggers are applied when they are written: what stands behind one
        // waits for that, as it may mean the same key.
        let mut triggers = false;
        let behind = letters.iter().position(|letter| {
            let waits = triggers && letter.what != "add";
            triggers |= matches!(&*letter.what, "add" | "retry");
            waits
        });
        if let Some(behind) = behind {
            letters.truncate(behind);
            store.look_again();
        }
        // some are left, and nobody will ring for them
        if !letters.is_empty() && store.looks_again() {
            self.wake.ask(Asked::Now);
        }
        let (letters, answered) = self.obey(store, letters);
        let (mut group, mut told, waits) = self.next_group(letters, answered);
        loop {
            if group.is_empty() {
                store.roll_back();
                told.extend(waits);
                told.into_iter().for_each(|told| told(Ok(())));
                return is_read;
            }
            match store.write(&group) {
                Ok(()) => {
                    *lock(&self.trouble) = None;
                    told.extend(waits);
                    told.into_iter().for_each(|told| told(Ok(())));
                    return is_read;
                }
                // users' code has refused one trigger: the others go on without it
                Err(Failed::Trigger(nth, error)) => {
                    group.triggers.remove(nth);
                    told.remove(nth)(Err(error));
                    if let Err(e) = store.begin() {
                        told.extend(waits);
                        return self.failed(store, group, told, e);
                    }
                }
                Err(e) => {
                    store.look_again();
                    told.extend(waits);
                    return self.failed(store, group, told, e);
                }
            }
        }
    }

    /// Whether nothing is noted that is to be written.
    fn is_empty(&self) -> bool {
        lock(&self.noted).group.is_empty()
    }

    /// The queues that are open and take no more.
    fn closed(&self) -> Vec<i64> {
        // one that goes here must not go under the lock
        let open: Vec<_> =
            lock(&self.intakes).iter().filter_map(|(queue, it)| Some((*queue, it.upgrade()?))).collect();
        open.into_iter().filter(|(_, intake)| intake.is_shut_down()).map(|(queue, _)| queue).collect()
    }

    /// The queue of this letter, if it is open.
    fn intake(&self, letter: &Letter) -> Option<Arc<dyn Intake>> {
        lock(&self.intakes).get(&letter.queue).and_then(Weak::upgrade)
    }

    /// The queues that are open do what letters ask for. Returns the letters that are to be written as triggers, or
    /// that the file is to do; and the answers to the others.
    fn obey(&self, store: &mut Store, letters: Vec<Letter>) -> (Vec<Routed>, Answered) {
        let (mut left, mut answered) = (Vec::new(), Answered::new());
        for letter in letters {
            match self.intake(&letter) {
                // what waits or is dead is in the file, and so is what is ready
                Some(_)
                    if letter.what == "retry" && !store.knows(letter.queue, &letter.key).unwrap_or(true) =>
                {
                    answered.push((letter.id, Some("nothing".to_owned())));
                }
                Some(intake) if letter.what != "add" => match intake.obey(&letter) {
                    Obeyed::Answer(answer) => answered.push((letter.id, Some(answer))),
                    Obeyed::Trigger(answer) => {
                        answered.push((letter.id, Some(answer)));
                        left.push((letter, Some(intake)));
                    }
                    Obeyed::InFile => left.push((letter, None)),
                },
                intake => left.push((letter, intake)),
            }
        }
        (left, answered)
    }

    /// One trigger for each key that is asked for at once several times. The others are answered with it.
    fn joined(letters: Vec<Routed>, answered: &mut Answered) -> Vec<Routed> {
        let mut joined: Vec<Routed> = Vec::with_capacity(letters.len());
        let mut first: HashMap<(i64, Vec<u8>), usize> = HashMap::new();
        for (letter, intake) in letters {
            let is_now = letter.what == "add" && letter.delay.is_none();
            let intake = match intake {
                Some(intake) if is_now => intake,
                intake => {
                    joined.push((letter, intake));
                    continue;
                }
            };
            let known = first.get(&(letter.queue, letter.key.clone())).copied();
            if known.is_some_and(|at| intake.join(&mut joined[at].0, &letter)) {
                answered.push((letter.id, None));
                continue;
            }
            first.insert((letter.queue, letter.key.clone()), joined.len());
            joined.push((letter, Some(intake)));
        }
        joined
    }

    /// What is noted, and the triggers of letters behind it; who is told of each trigger, and who of the ends.
    fn next_group(&self, letters: Vec<Routed>, mut answered: Answered) -> (Group, Vec<Told>, Vec<Told>) {
        let letters = Self::joined(letters, &mut answered);
        let mut noted = lock(&self.noted);
        let noted_now = noted.group.triggers.len();
        // tickets are written in their order, so that nothing may be left before those of letters
        let most = if letters.is_empty() { noted_now.min(MOST) } else { noted_now };
        let mut group = Group {
            ends: std::mem::take(&mut noted.group.ends),
            paused: std::mem::take(&mut noted.group.paused),
            unscheduled: std::mem::take(&mut noted.group.unscheduled),
            dead: std::mem::take(&mut noted.group.dead),
            triggers: noted.group.triggers.drain(..most).collect(),
            ..Group::default()
        };
        let mut told: Vec<_> = noted.told.drain(..most).collect();
        let waits = std::mem::take(&mut noted.waits);
        let tickets = noted.tickets + 1..;
        noted.tickets += letters.len() as u64;
        // An intake may want the lock of its queue, under which ends are noted.
        drop(noted);
        for ((letter, intake), ticket) in letters.into_iter().zip(tickets) {
            let Some(intake) = intake else {
                group.letters.push(letter);
                continue;
            };
            let is_add = letter.what == "add";
            match intake.trigger(&letter, ticket) {
                Ok((trigger, tells)) => {
                    group.triggers.push(trigger);
                    told.push(tells);
                    if is_add {
                        answered.push((letter.id, None));
                    }
                }
                // it was shut down just now, and the letter stays where it is
                Err(EngineError::ShutDown) if is_add => {}
                // it was accepted: what can't be run is shown, with the reason
                Err(e) if is_add => {
                    group.dead.push(((letter.queue, letter.key.into()), letters::why(&e)));
                    answered.push((letter.id, None));
                }
                Err(e) => answered.push((letter.id, Some(e.to_string()))),
            }
        }
        group.answered = answered;
        (group, told, waits)
    }

    /// The loop of the committer.
    fn commits(&self, looks: Duration) {
        loop {
            let asked = self.wake.next(looks);
            let written = catch_unwind(AssertUnwindSafe(|| self.commit(lock(&self.store))));
            if asked == Asked::Ends {
                // nobody waits for a trigger any more, for who does has a writer
                return;
            }
            if self.looks_around(asked) {
                self.wake.ask(Asked::Shown);
            }
            if self.is_asked() {
                self.wake.ask(Asked::Now);
            } else if !written.unwrap_or(false) {
                std::thread::sleep(TRIES_AGAIN);
                self.wake.ask(Asked::Soon);
            }
        }
    }

    /// Does what is to be done now and then. True if some keys run that are not shown yet.
    fn looks_around(&self, asked: Asked) -> bool {
        let mut store = lock(&self.store);
        if asked == Asked::Nothing {
            store.check_place();
        }
        if let Some(lost) = store.lost() {
            self.lose(lost);
        }
        let open: Vec<_> = lock(&self.intakes).values().filter_map(Weak::upgrade).collect();
        let mut some = false;
        for intake in open {
            some |= intake.show_runs(&store);
        }
        some
    }

    /// Others have what this process works on.
    fn lose(&self, why: &str) {
        if self.lost.set(why.to_owned()).is_ok() {
            *lock(&self.trouble) = Some(why.to_owned());
            let open: Vec<_> = lock(&self.intakes).values().filter_map(Weak::upgrade).collect();
            open.iter().for_each(|intake| intake.lose());
        }
    }

    /// A group was not written: its triggers are refused, and its ends are kept.
    fn failed(&self, store: &Store, group: Group, told: Vec<Told>, failed: Failed) -> bool {
        let mut noted = lock(&self.noted);
        // Letters stand in the file, and are read again.
        for (place, end) in group.ends {
            // what was noted meanwhile knows more
            noted.group.ends.entry(place).or_insert(end);
        }
        for (queue, paused) in group.paused {
            noted.group.paused.entry(queue).or_insert(paused);
        }
        noted.group.unscheduled.extend(group.unscheduled);
        noted.group.dead.extend(group.dead);
        drop(noted);
        let (why, error): (_, fn(BoxError) -> EngineError) = match failed {
            Failed::Maybe(why) => (why.to_string(), EngineError::Unknown),
            failed => (letters::why(&failed.into_error()), EngineError::NotApplied),
        };
        *lock(&self.trouble) = Some(why.clone());
        if let Some(lost) = store.lost() {
            self.lose(lost);
        }
        told.into_iter().for_each(|told| told(Err(error(why.clone().into()))));
        false
    }
}

impl Wake {
    fn ask(&self, what: Asked) {
        let mut asked = lock(&self.asked);
        if *asked < what {
            *asked = what;
            self.changed.notify_one();
        }
    }

    /// Sleeps until something is asked and it is time for it, or it is time to look for letters.
    fn next(&self, looks: Duration) -> Asked {
        let mut asked = lock(&self.asked);
        loop {
            asked = match *asked {
                Asked::Nothing => {
                    let waited = self.changed.wait_timeout(asked, looks);
                    let (asked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() && *asked == Asked::Nothing {
                        return Asked::Nothing;
                    }
                    asked
                }
                now @ (Asked::Shown | Asked::Soon) => {
                    let rest = if now == Asked::Soon { ENDS_WAIT } else { SHOWS };
                    let waited = self.changed.wait_timeout(asked, rest);
                    let (asked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return self.taken(asked);
                    }
                    asked
                }
                Asked::Now | Asked::Ends => return self.taken(asked),
            };
        }
    }

    fn taken(&self, mut asked: MutexGuard<'_, Asked>) -> Asked {
        std::mem::take(&mut *asked)
    }
}
