//! [`Sim`]: a simulation, as its user writes it.

use crate::engine;
use crate::source::Source;
use crate::trace::{Trace, TraceError};
use crate::{Call, Failure, Gap, Plan, ReplayError, Rng, Run, Summary, Value, World};
use requeue::{FakeClock, WorkQueue};
use std::fmt;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;
use std::time::Duration;

/// A key that can be queued and written to a trace. Implemented for all types that qualify.
///
/// ```
/// fn is_key<K: requeue_sim::Key>() {}
/// is_key::<String>();
/// is_key::<u64>();
/// ```
pub trait Key: Hash + Eq + Clone + Display + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Display + Send + Sync + 'static> Key for K {}

pub(crate) type Handler<K, V> = Box<dyn FnMut(&Run<K, V>, &mut Rng) -> Plan<K, V>>;
pub(crate) type Check<K, V> = Box<dyn FnMut(&World<K, V>) -> Result<(), String>>;
pub(crate) type Make<K, V> = Box<dyn FnMut(&mut Rng) -> Call<K, V>>;

pub(crate) struct Producer<K, V> {
    pub(crate) gap: Gap,
    pub(crate) make: Make<K, V>,
}

pub(crate) struct Invariant<K: Hash + Eq, V: 'static> {
    pub(crate) name: String,
    pub(crate) check: Check<K, V>,
}

/// A simulation of one queue: the real [`WorkQueue`] on a clock that stands still. A seed drives its
/// producers, workers, failures and time.
///
/// It shares nothing with other simulations, and one run uses it up, so the closures may have state: write a
/// function that makes it, and give that to [`check`](crate::check).
///
/// ```
/// use requeue::WorkQueue;
/// use requeue_sim::{Plan, Sim, Trigger};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let sim = Sim::new(|clock| WorkQueue::builder().clock(clock).build().unwrap())
///     .workers(3)
///     .lasting(Duration::from_secs(3600))
///     // a trigger of one of ten objects each 0 to 200 ms
///     .producer(ms(0)..=ms(200), |rng| Trigger::now(format!("web-{}", rng.below(10))))
///     // every tenth run fails
///     .handler(move |_, rng| {
///         let plan = if rng.one_in(10) { Plan::retry() } else { Plan::done() };
///         plan.taking(rng.between(ms(1)..=ms(50)))
///     })
///     .invariant("nobody waits for long", move |world| {
///         match world.keys().find(|log| log.longest_wait > ms(500)) {
///             Some(log) => Err(format!("{} waited {:?}", log.key, log.longest_wait)),
///             None => Ok(()),
///         }
///     });
/// let summary = sim.run(1)?;
/// assert!(summary.runs > 30_000 && summary.simulated == Duration::from_secs(3600));
/// # Ok::<(), requeue_sim::Failure>(())
/// ```
#[must_use = "a simulation does nothing until it is run"]
pub struct Sim<K: Hash + Eq, V: 'static = ()> {
    pub(crate) clock: FakeClock,
    pub(crate) queue: WorkQueue<K, V>,
    pub(crate) workers: usize,
    /// Maximum number of keys that a worker takes at once.
    pub(crate) batch: usize,
    pub(crate) lasting: Duration,
    pub(crate) settling: Duration,
    pub(crate) producers: Vec<Producer<K, V>>,
    pub(crate) handler: Handler<K, V>,
    pub(crate) invariants: Vec<Invariant<K, V>>,
}

impl<K: Key, V: Value> Sim<K, V> {
    /// A simulation of the queue that `queue` builds. It must use the given clock; otherwise
    /// [`run`](Self::run) fails and says so.
    ///
    /// By default one worker takes keys as they come, its runs succeed at once, and it lasts a minute.
    /// Nothing happens until a [producer](Self::producer) is added.
    ///
    /// ```
    /// use requeue::WorkQueue;
    /// use requeue_sim::Sim;
    /// let sim = Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// assert_eq!(sim.run(0).unwrap().runs, 0);
    ///
    /// let wrong = Sim::<u32>::new(|_| WorkQueue::new());
    /// let failure = wrong.run(0).unwrap_err();
    /// assert!(failure.to_string().contains("built on the clock"));
    /// ```
    ///
    /// Keys have values if the queue is built with a merge. A value is written to a trace:
    ///
    /// ```
    /// use requeue::WorkQueue;
    /// use requeue_sim::{Event, Sim, Trigger};
    /// use std::time::Duration;
    /// let sim = Sim::new(|clock| WorkQueue::merging(|all: &mut u64, more| *all += more).clock(clock).build().unwrap())
    ///     .workers(0)
    ///     .producer(Duration::from_secs(1), |rng| Trigger::now(rng.below(3)).value(1));
    /// assert_eq!(sim.run(0).unwrap().calls, 60);
    /// ```
    pub fn new(queue: impl FnOnce(FakeClock) -> WorkQueue<K, V>) -> Self {
        let clock = FakeClock::new();
        let queue = queue(clock.clone());
        Self {
            clock,
            queue,
            workers: 1,
            batch: 1,
            lasting: Duration::from_secs(60),
            settling: Duration::ZERO,
            producers: Vec::new(),
            handler: Box::new(|_, _| Plan::done()),
            invariants: Vec::new(),
        }
    }

    /// Sets the number of workers. With none, no key runs.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let sim = sim.workers(8);
    /// # drop(sim);
    /// ```
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Sets the maximum number of keys that a worker takes at once, if it is more than one: by
    /// [`get_many`](WorkQueue::get_many). Their runs begin at one instant, each ends by its own plan, and the
    /// worker looks for keys again when all have ended.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_sim::{Call, Plan, Trigger};
    /// # use std::time::Duration;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let second = Duration::from_secs(1);
    /// sim.batches(8)
    ///     .producer(second, |_| Call::AddMany((0..20).map(Trigger::now).collect()))
    ///     .invariant("at most eight at once", |world| match world.running().count() {
    ///         0..=8 => Ok(()),
    ///         more => Err(format!("{more}")),
    ///     })
    ///     .run(0)?;
    /// # Ok::<(), requeue_sim::Failure>(())
    /// ```
    pub fn batches(self, most: usize) -> Self {
        Self { batch: most, ..self }
    }

    /// Sets how long producers call, in the simulation's time. Then it is over, unless it has time for
    /// [`settling`](Self::settling).
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use std::time::Duration;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let week = Duration::from_secs(7 * 24 * 3600);
    /// assert_eq!(sim.lasting(week).run(0).unwrap().simulated, week);
    /// ```
    pub fn lasting(self, time: Duration) -> Self {
        Self { lasting: time, ..self }
    }

    /// Sets how long it goes on after that without calls of producers, so that current work can end.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_sim::{Plan, Trigger};
    /// # use std::time::Duration;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let ms = Duration::from_millis;
    /// sim.producer(ms(10), |rng| Trigger::now(rng.below(9) as u32))
    ///     .handler(move |_, _| Plan::done().taking(ms(15)))
    ///     .settling(Duration::from_secs(1))
    ///     .invariant("in the end all is done", |world| match world.queue().stats().known {
    ///         known if world.is_over() && known > 0 => Err(format!("{known} keys are not")),
    ///         _ => Ok(()),
    ///     })
    ///     .run(0)?;
    /// # Ok::<(), requeue_sim::Failure>(())
    /// ```
    pub fn settling(self, time: Duration) -> Self {
        Self { settling: time, ..self }
    }

    /// Adds a producer: its calls go to the queue, with a gap before each. There may be several; each has
    /// random numbers of its own.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_sim::{Call, Trigger};
    /// # use std::time::Duration;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let second = Duration::from_secs(1);
    /// let mut next = 0;
    /// let sim = sim
    ///     .producer(second, move |_| {
    ///         next += 1;
    ///         Trigger::now(next)
    ///     })
    ///     .producer(second..=9 * second, |rng| Call::Cancel(rng.below(10) as u32));
    /// # drop(sim);
    /// ```
    pub fn producer<C: Into<Call<K, V>>>(
        mut self,
        gap: impl Into<Gap>,
        mut make: impl FnMut(&mut Rng) -> C + 'static,
    ) -> Self {
        self.producers.push(Producer { gap: gap.into(), make: Box::new(move |rng| make(rng).into()) });
        self
    }

    /// Sets the behaviour of runs, asked for when each begins. Its random numbers depend only on seed, key
    /// and instant, so that a run does not change when calls for other keys are removed.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_sim::{Plan, Run, Trigger};
    /// # use std::time::Duration;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let sim = sim.handler(|run: &Run<u32>, rng| {
    ///     if rng.one_in(100) {
    ///         return Plan::ending(requeue_sim::End::Panic);
    ///     }
    ///     // its own write is an event
    ///     Plan::done().taking(Duration::from_secs(1)).calling(Duration::ZERO, Trigger::now(run.key))
    /// });
    /// # drop(sim);
    /// ```
    pub fn handler(mut self, handler: impl FnMut(&Run<K, V>, &mut Rng) -> Plan<K, V> + 'static) -> Self {
        self.handler = Box::new(handler);
        self
    }

    /// Adds an invariant that must be true after every step. If it is not, the error describes the violation.
    /// A panic in it is not caught.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let sim = sim.invariant("at most ten keys are ready", |world| match world.queue().len() {
    ///     0..=10 => Ok(()),
    ///     more => Err(format!("{more} are")),
    /// });
    /// # drop(sim);
    /// ```
    pub fn invariant(
        mut self,
        name: impl Into<String>,
        check: impl FnMut(&World<K, V>) -> Result<(), String> + 'static,
    ) -> Self {
        self.invariants.push(Invariant { name: name.into(), check: Box::new(check) });
        self
    }

    /// Plays one schedule. A failure is reported as it was played; [`explore`](crate::explore) and
    /// [`check`](crate::check) make it smaller first.
    ///
    /// # Errors
    ///
    /// If an invariant is broken.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let failure = sim.invariant("never true", |_| Err("of course".into())).run(3).unwrap_err();
    /// assert_eq!((failure.seed, failure.invariant.as_str()), (3, "never true"));
    /// ```
    pub fn run(self, seed: u64) -> Result<Summary, Failure> {
        engine::play(self, seed, Source::producers(), true).verdict
    }

    /// Replays a trace: its calls instead of the producers', all else by its seed. Lines that begin with `#`
    /// are comments.
    ///
    /// # Errors
    ///
    /// If the failure shows again; and if a trace cannot be read, with the line.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = || requeue_sim::Sim::<String>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
    /// let trace = "seed 7\n0.5s add \"a\"\n0.75s cancel \"a\"\n";
    /// assert_eq!(new().replay(trace).unwrap().calls, 2);
    /// let wrong = new().replay("seed 7\nsoon add \"a\"").unwrap_err();
    /// assert_eq!(wrong.to_string(), "line 2 of the trace, `soon add \"a\"`: soon is no time such as 1.5s");
    /// ```
    pub fn replay(self, trace: &str) -> Result<Summary, ReplayError>
    where
        K: FromStr,
    {
        let Trace { seed, calls } = trace.parse().map_err(|e: TraceError| ReplayError::Trace(e))?;
        engine::play(self, seed, Source::calls(&calls), true).verdict.map_err(ReplayError::Failed)
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Sim<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.invariants.iter().map(|invariant| &invariant.name).collect();
        f.debug_struct("Sim")
            .field("workers", &self.workers)
            .field("lasting", &self.lasting)
            .field("producers", &self.producers.len())
            .field("invariants", &names)
            .finish_non_exhaustive()
    }
}
