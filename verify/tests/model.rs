//! The library in lock-step with the reference model: random operation
//! sequences, shrunk to the shortest that fails.
//!
//! `PROPTEST_CASES` sets how many sequences each test tries (default 2,000: 6 ms of processor each).

use proptest::prelude::*;
use requeue::{Debounce, Only};
use requeue_verify::adapter::{InBackoff, Policy, Rate, Waiters, When};
use requeue_verify::fronts::{BareAsync, Blocking};
use requeue_verify::lockstep::{BATCH, KEYS, Op, Setup, Wish, Word, WordMany, run};
use requeue_verify::model::{Fair, Grouping, MaxWait, Order};
use std::fmt;
use std::time::Duration;

fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..8_u64, 1 => Just(u64::MAX), 1 => 1_000..2_000_u64]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![12 => delay().prop_map(Duration::from_nanos), 1 => Just(Duration::MAX)]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        3 => Just(Policy::Earliest),
        2 => duration().prop_map(Policy::Latest),
        2 => Just(Policy::Replace),
        1 => Just(Policy::Keep),
    ]
}

fn when() -> impl Strategy<Value = When> {
    let plain = prop_oneof![
        3 => Just(When::Now),
        4 => (duration(), policy()).prop_map(|(delay, policy)| When::After(delay, policy)),
        2 => Just(When::RateLimited),
    ];
    (plain, proptest::option::of(in_backoff()))
        .prop_map(|(plain, said)| said.map_or(plain, |said| plain.in_backoff(said)))
}

fn in_backoff() -> impl Strategy<Value = InBackoff> {
    prop_oneof![1 => Just(InBackoff::Run), 2 => Just(InBackoff::Respect), 1 => Just(InBackoff::Reset)]
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        3 => Just(Word::Done),
        1 => Just(Word::Succeed),
        1 => Just(Word::GiveUp),
        2 => Just(Word::PutBack),
        3 => Just(Word::Retry),
        2 => delay().prop_map(Word::RetryAfter),
        2 => delay().prop_map(Word::RequeueAfter),
        2 => Just(Word::Drop),
        1 => Just(Word::Detach),
        1 => Just(Word::Next),
    ]
}

/// Maximum number of keys in one call.
fn most() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1..4_usize, 1 => Just(0), 1 => Just(usize::MAX)]
}

fn word_many() -> impl Strategy<Value = WordMany> {
    prop_oneof![
        3 => Just(WordMany::Done),
        1 => Just(WordMany::Succeed),
        2 => Just(WordMany::Drop),
        3 => Just(WordMany::Singles),
        1 => (0..3_usize).prop_map(WordMany::Some),
        3 => most().prop_map(WordMany::Next),
        2 => (0..3_usize).prop_map(WordMany::Unwind),
    ]
}

fn priority() -> impl Strategy<Value = i16> {
    prop_oneof![4 => Just(0), 6 => -2..3_i16, 1 => Just(i16::MIN), 1 => Just(i16::MAX)]
}

fn debounce() -> impl Strategy<Value = Debounce> {
    let max = proptest::option::of(duration());
    (0..6_u64, max, any::<bool>()).prop_map(|(quiet, max, leading)| {
        let debounce = Debounce::new(Duration::from_nanos(quiet));
        let debounce = max.into_iter().fold(debounce, Debounce::max);
        if leading { debounce.leading() } else { debounce }
    })
}

/// On the heap: a test's thread has 2 MiB of stack, too little for a batch of these.
fn wish() -> BoxedStrategy<Wish> {
    let debounce = proptest::option::weighted(0.3, debounce());
    (0..KEYS, when(), any::<bool>(), priority(), debounce)
        .prop_map(|(key, when, valued, priority, debounce)| Wish { debounce, key, when, valued, priority })
        .boxed()
}

fn batch() -> impl Strategy<Value = Op> {
    ([wish(), wish(), wish(), wish()], 0..=BATCH).prop_map(|(triggers, len)| Op::TriggerMany(triggers, len))
}

fn waiters() -> impl Strategy<Value = Waiters> {
    prop_oneof![Just(Waiters::Drop), Just(Waiters::RunNow), Just(Waiters::Wait), Just(Waiters::Retries)]
}

/// Calls that end the queue: rare, because afterwards little happens.
fn end() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::Close),
        1 => Just(Op::ShutDown),
        1 => (0..16_usize).prop_map(Op::LeaveDrain),
        3 => (waiters(), proptest::option::weighted(0.3, delay()))
            .prop_map(|(waiters, deadline)| Op::Drain(waiters, deadline)),
        1 => Just(Op::TakeUnfinished),
    ]
}

fn only() -> impl Strategy<Value = Only> {
    prop_oneof![
        Just(Only::Ready),
        Just(Only::Held),
        Just(Only::Dirty),
        Just(Only::Waiting),
        Just(Only::Failed),
        Just(Only::Paused),
        Just(Only::GroupPaused)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    prop_oneof![
        240 => wish().prop_map(Op::Trigger),
        100 => batch(),
        80 => most().prop_map(Op::TryGetMany),
        100 => ((0..16_usize), word_many()).prop_map(|(index, word)| Op::EndMany(index, word)),
        30 => most().prop_map(Op::GetMany),
        20 => key().prop_map(Op::AddRef),
        160 => Just(Op::TryGet),
        160 => ((0..16_usize), word()).prop_map(|(index, word)| Op::End(index, word)),
        30 => key().prop_map(Op::Done),
        20 => key().prop_map(Op::Forget),
        60 => (key(), any::<bool>()).prop_map(|(key, forget)| Op::Cancel(key, forget)),
        60 => (1..3_usize).prop_map(Op::Page),
        20 => (most(), proptest::option::of(only())).prop_map(|(most, only)| Op::Snapshot(most, only)),
        50 => (wish(), 0..4_u32, 0..4_u32, proptest::option::of(0..200_u64))
            .prop_map(|(wish, failures, attempt, due)| Op::Restore(wish, failures, attempt, due)),
        40 => proptest::bool::weighted(0.35).prop_map(Op::Pause),
        2 => Just(Op::LiftRate),
        70 => (key(), proptest::bool::weighted(0.4)).prop_map(|(key, pause)| Op::PauseKey(key, pause)),
        50 => (key(), proptest::bool::weighted(0.4)).prop_map(|(key, pause)| Op::PauseGroup(key, pause)),
        20 => (0..16_usize).prop_map(Op::TakeValue),
        120 => (0..6_u64).prop_map(Op::Advance),
        50 => wish().prop_map(Op::AddWhenRoom),
        40 => (0..16_usize).prop_map(Op::PollAdder),
        10 => (0..16_usize).prop_map(Op::LeaveAdder),
        60 => Just(Op::Get),
        60 => (0..16_usize).prop_map(Op::Poll),
        30 => (0..16_usize).prop_map(Op::Leave),
    ]
}

/// Printed one operation a line.
#[derive(Clone)]
struct Steps(Vec<(Op, bool)>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(op, look)| write!(f, "\n    ({op:?}, {look}),"))
    }
}

fn steps(ends: bool) -> BoxedStrategy<Steps> {
    let op = if ends { prop_oneof![19 => op(), 1 => end()].boxed() } else { op().boxed() };
    proptest::collection::vec((op, any::<bool>()), 1..80).prop_map(Steps).boxed()
}

/// Groups of one key to all keys, of few weights, and more often than not with caps.
fn grouping() -> BoxedStrategy<Grouping> {
    let caps = prop_oneof![1 => Just(usize::MAX), 1 => 1..3_usize];
    // fractions that an f64 of keys a second tells exactly
    let rate = (0..3_u32, 1..3_u32).prop_map(|(nanos, burst)| Rate { keys: 1, nanos: 1 << nanos, burst });
    let rate = prop_oneof![2 => Just(None), 1 => rate.prop_map(Some)];
    (1..5_u64, proptest::array::uniform4(1..4_u32), proptest::array::uniform4(caps), rate)
        .prop_map(|(divisor, weights, caps, rate)| Grouping { divisor, weights, caps, rate })
        .boxed()
}

fn setup() -> BoxedStrategy<Setup> {
    let after = prop_oneof![3 => 0..8_u64, 1 => Just(u64::MAX)];
    let max_wait = (after, 2..5_u32).prop_map(|(after, every)| MaxWait { after, every });
    let max_wait = proptest::option::weighted(0.7, max_wait).boxed();
    let fair = (grouping(), any::<bool>(), any::<bool>(), max_wait.clone());
    let fair = fair.prop_map(|(groups, priorities, within, max_wait)| {
        Order::Fair(Fair { groups, priorities, within: priorities && within, max_wait })
    });
    let order = prop_oneof![
        3 => Just(Order::Fifo),
        1 => Just(Order::Lifo),
        1 => Just(Order::Custom),
        6 => fair,
        4 => max_wait.prop_map(|max_wait| Order::Priority { max_wait }),
    ]
    .boxed();
    let in_backoff = prop_oneof![1 => Just(InBackoff::Run), 1 => in_backoff()];
    let bound = proptest::option::of(1..4_usize);
    // fractions that an f64 of keys a second tells exactly
    let rate = (1..4_u32, prop_oneof![Just(1_u32), Just(2), Just(5), Just(8), Just(10)], 1..4_u32)
        .prop_map(|(keys, nanos, burst)| Rate { keys, nanos, burst });
    let rate = proptest::option::weighted(0.4, rate).boxed();
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let debounce = proptest::option::of(debounce()).boxed();
    let expire_after =
        proptest::option::weighted(0.4, prop_oneof![3 => 0..12_u64, 1 => Just(u64::MAX)]).boxed();
    let rest = (rate, bound, debounce, expire_after);
    (order, flags, in_backoff, rest)
        .prop_map(|(order, flags, in_backoff, (rate, bound, debounce, expire_after))| {
            let (absorbed, unfinished_retries, own_limiter, metered, drop_oldest) = flags;
            Setup {
                order,
                rate,
                absorbed,
                unfinished_retries,
                in_backoff,
                debounce,
                bound,
                drop_oldest,
                expire_after,
                own_limiter,
                metered,
            }
        })
        .boxed()
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(2_000),
        max_shrink_iters: 100_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn model_the_queue_answers_as_the_model_while_it_is_open(setup in setup(), steps in steps(false)) {
        run::<Blocking>(setup, &steps.0);
    }

    #[test]
    fn model_the_queue_answers_as_the_model_through_its_end(setup in setup(), steps in steps(true)) {
        run::<Blocking>(setup, &steps.0);
    }

    #[test]
    fn model_owned_guards_answer_as_the_model_through_the_end(setup in setup(), steps in steps(true)) {
        run::<BareAsync>(setup, &steps.0);
    }
}
