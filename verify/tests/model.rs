//! The library in lock-step with the reference model: random operation
//! sequences, shrunk to the shortest that fails.
//!
//! `PROPTEST_CASES` sets how many sequences each test tries (default 300).

use proptest::prelude::*;
use requeue_verify::adapter::{Policy, Waiters, When};
use requeue_verify::fronts::{BareAsync, Blocking};
use requeue_verify::lockstep::{BATCH, KEYS, Op, Setup, Word, WordMany, run};
use requeue_verify::machine::Machine;
use requeue_verify::model::Order;
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
    prop_oneof![
        3 => Just(When::Now),
        4 => (duration(), policy()).prop_map(|(delay, policy)| When::After(delay, policy)),
        2 => Just(When::RateLimited),
    ]
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        3 => Just(Word::Done),
        1 => Just(Word::Succeed),
        1 => Just(Word::GiveUp),
        3 => Just(Word::Retry),
        2 => delay().prop_map(Word::RetryAfter),
        2 => delay().prop_map(Word::RequeueAfter),
        2 => Just(Word::Drop),
        1 => Just(Word::Detach),
        1 => Just(Word::Next),
    ]
}

/// How many keys are asked for at once.
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

fn batch() -> impl Strategy<Value = Op> {
    let trigger = || (0..KEYS, when(), any::<bool>());
    ([trigger(), trigger(), trigger(), trigger()], 0..=BATCH)
        .prop_map(|(triggers, len)| Op::TriggerMany(triggers, len))
}

fn waiters() -> impl Strategy<Value = Waiters> {
    prop_oneof![Just(Waiters::Drop), Just(Waiters::RunNow), Just(Waiters::Wait)]
}

/// What ends the queue: seldom, for afterwards little happens.
fn end() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::Close),
        1 => Just(Op::ShutDown),
        1 => (0..16_usize).prop_map(Op::LeaveDrain),
        3 => (waiters(), proptest::option::weighted(0.3, delay()))
            .prop_map(|(waiters, deadline)| Op::Drain(waiters, deadline)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    prop_oneof![
        240 => (key(), when(), any::<bool>()).prop_map(|(key, when, valued)| Op::Trigger(key, when, valued)),
        100 => batch(),
        80 => most().prop_map(Op::TryGetMany),
        100 => ((0..16_usize), word_many()).prop_map(|(index, word)| Op::EndMany(index, word)),
        30 => most().prop_map(Op::GetMany),
        20 => key().prop_map(Op::AddRef),
        160 => Just(Op::TryGet),
        160 => ((0..16_usize), word()).prop_map(|(index, word)| Op::End(index, word)),
        30 => key().prop_map(Op::Done),
        20 => key().prop_map(Op::Forget),
        20 => (0..16_usize).prop_map(Op::TakeValue),
        120 => (0..6_u64).prop_map(Op::Advance),
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

fn steps(ends: bool) -> impl Strategy<Value = Steps> {
    let op = if ends { prop_oneof![19 => op(), 1 => end()].boxed() } else { op().boxed() };
    proptest::collection::vec((op, any::<bool>()), 1..80).prop_map(Steps)
}

fn setup() -> impl Strategy<Value = Setup> {
    let order = prop_oneof![3 => Just(Order::Fifo), 1 => Just(Order::Lifo), 1 => Just(Order::Custom)];
    (order, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(order, absorbed, unfinished_retries, own_limiter, metered)| Setup {
            order,
            absorbed,
            unfinished_retries,
            own_limiter,
            metered,
            wakes: true,
        },
    )
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(300),
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

    #[test]
    fn model_the_state_machine_answers_as_the_model(setup in setup(), steps in steps(true)) {
        run::<Machine>(Setup { own_limiter: false, metered: false, wakes: false, ..setup }, &steps.0);
    }
}
