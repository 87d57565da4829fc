//! Tests of auto traits: which types may cross threads or move while they wait, and which may not. Both are
//! promises.

#![allow(dead_code, reason = "what stands here is for the compiler; older ones call it unused")]

use requeue::limiter::{self, Bucket, Exponential, Reservation, TokenBucket};
use requeue::*;
use std::cell::Cell;
use std::marker::PhantomPinned;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::MutexGuard;

/// `assert_impl!(Type: Trait, Trait)` compiles if the type has the traits.
macro_rules! assert_impl {
    ($type:ty: $($bound:path),+) => {
        const _: fn() = || {
            $({
                fn has<T: ?Sized + $bound>() {}
                has::<$type>();
            })+
        };
    };
}

/// `assert_not_impl!(Type: Trait, Trait)` compiles if the type has none of them: with one, two
/// implementations would fit and the call would be ambiguous.
macro_rules! assert_not_impl {
    ($type:ty: $($bound:path),+) => {
        $(const _: fn() = || {
            trait Either<Which> {
                fn or() {}
            }
            struct Has;
            impl<T: ?Sized> Either<()> for T {}
            impl<T: ?Sized + $bound> Either<Has> for T {}
            let _ = <$type as Either<_>>::or;
        };)+
    };
}

/// Sync and not Send.
type NotSend = MutexGuard<'static, ()>;

// The queue: keys are read on several threads at once, values only ever on one.
assert_impl!(WorkQueue<String>: Send, Sync, Unpin);
assert_impl!(WorkQueue<String, Cell<u8>>: Send, Sync, Unpin);
assert_impl!(WorkQueue<String, PhantomPinned>: Unpin);
assert_not_impl!(WorkQueue<Cell<u8>>: Send, Sync);
assert_not_impl!(WorkQueue<NotSend>: Send, Sync);
assert_not_impl!(WorkQueue<String, Rc<u8>>: Send, Sync);
assert_not_impl!(WorkQueue<String, (), Rc<RandomState>>: Send, Sync);

// Snapshots and states of keys.
assert_impl!(Snapshot<'static, String>: Send, Sync, Unpin);
assert_not_impl!(Snapshot<'static, Cell<u8>>: Send, Sync);
assert_impl!(Page<String>: Send, Sync, Unpin);
assert_impl!(UnfinishedKey<String, Cell<u8>>: Send, Unpin);
assert_impl!(Cancelled<Cell<u8>>: Send, Unpin);

// Gets, and their results.
assert_impl!(Get<'static, String>: Send, Unpin);
assert_impl!(Get<'static, String, Cell<u8>>: Send, Unpin);
assert_impl!(Get<'static, String, PhantomPinned>: Unpin);
assert_impl!(Timeout<Get<'static, String, Cell<u8>>>: Send, Unpin);
assert_impl!(GetMany<'static, String, Cell<u8>>: Send, Unpin);
assert_impl!(GetMany<'static, String, PhantomPinned>: Unpin);
assert_impl!(Timeout<GetMany<'static, String, Cell<u8>>>: Send, Unpin);
assert_impl!(Getter<String, Cell<u8>>: Send, Sync, Unpin, Clone);
assert_not_impl!(Getter<String, Rc<u8>>: Send, Sync);
assert_impl!(WeakQueue<String, Cell<u8>>: Send, Sync, Unpin, Clone);
assert_not_impl!(WeakQueue<String, Rc<u8>>: Send, Sync);
assert_impl!(Phase: Send, Sync, Copy, Ord);
assert_impl!(Add<String>: Send, Sync);
assert_impl!(Items<'static, String, Cell<u8>>: Send);
assert_impl!(<Items<'static, String, Cell<u8>> as IntoIterator>::IntoIter: Send);
assert_impl!(AddedMany<String, Cell<u8>>: Send);
assert_impl!(<AddedMany<String, Cell<u8>> as IntoIterator>::IntoIter: Send);
assert_not_impl!(GetMany<'static, Cell<u8>>: Send, Sync);
assert_not_impl!(GetMany<'static, String, Rc<u8>>: Send, Sync);
assert_not_impl!(Items<'static, Cell<u8>>: Send, Sync);
assert_not_impl!(Items<'static, String, Rc<u8>>: Send, Sync);
assert_not_impl!(Get<'static, Cell<u8>>: Send, Sync);
assert_not_impl!(Get<'static, String, Rc<u8>>: Send, Sync);
assert_impl!(Item<'static, String, Vec<u8>>: Send, Sync, Unpin);
assert_impl!(Item<'static, String, Cell<u8>>: Send);
assert_not_impl!(Item<'static, String, Cell<u8>>: Sync);
assert_not_impl!(Item<'static, String, Rc<u8>>: Send, Sync);
assert_not_impl!(Item<'static, Cell<u8>>: Send, Sync);
assert_not_impl!(Item<'static, NotSend>: Send, Sync);

// A drain, its options and its answer.
assert_impl!(Drain<'static, String, Cell<u8>>: Send, Unpin);
assert_not_impl!(Drain<'static, String, Rc<u8>>: Send, Sync);
assert_impl!(DrainOptions: Send, Sync, Copy);
assert_impl!(Drained: Send, Sync, Copy);

// A worker, a run and an end with a report.
assert_impl!(Worker: Send, Sync, Unpin);
assert_impl!(WorkerBuilder<String, Cell<u8>>: Send);
assert_impl!(Run<String, Cell<u8>>: Send, Unpin);
assert_impl!(Run<String, Vec<u8>>: Send, Sync, Unpin);
assert_not_impl!(Run<String, Cell<u8>>: Sync);
assert_not_impl!(Run<String, Rc<u8>>: Send, Sync);
assert_not_impl!(Run<String>: Clone);
assert_impl!(Stop: Send, Unpin);
assert_impl!(Explanation: Send, Sync, Copy, Unpin);
type Ready = std::future::Ready<()>;
assert_impl!(WorkerFuture<String, Cell<u8>, fn(Run<String, Cell<u8>>) -> Ready, Ready>: Send, Unpin);
assert_impl!(WorkerFuture<String, u8, Rc<u8>, Ready>: Unpin);
assert_not_impl!(WorkerFuture<String, u8, Rc<u8>, Ready>: Send, Sync);
assert_impl!(StopReport: Send, Sync, Copy);
assert_impl!(Outcome: Send, Sync);
assert_impl!(Failure: std::error::Error, Send, Sync);

// Builders travel with what is in them.
assert_impl!(Builder<String, Cell<u8>>: Send);

// Traits behind pointers.
assert_impl!(dyn Queue<String>: Send, Sync);
assert_impl!(dyn DelayingQueue<String>: Send, Sync);
assert_impl!(dyn RateLimitingQueue<String>: Send, Sync);
assert_impl!(dyn Clock: Send, Sync);
assert_impl!(dyn Metrics: Send, Sync);
assert_impl!(dyn RateLimiter<String>: Send, Sync);
// The three layers need what a shared queue needs, and no more.
assert_impl!(WorkQueue<String, Cell<u8>>: Queue<String, Cell<u8>>);
assert_not_impl!(WorkQueue<Cell<u8>>: Queue<Cell<u8>>);
assert_not_impl!(WorkQueue<String, Rc<u8>>: Queue<String, Rc<u8>>);

// Clocks. A parker stays on its thread, its waker goes anywhere.
assert_impl!(SystemClock: Send, Sync, Unpin, Copy, UnwindSafe, RefUnwindSafe);
assert_impl!(FakeClock: Send, Sync, Unpin, Clone);
assert_impl!(Alarm: Send, Unpin);
assert_not_impl!(Alarm: Clone);
assert_not_impl!(Parker: Send, Sync, Clone);
assert_impl!(Instant: Send, Sync, Unpin, Copy, Ord, std::hash::Hash);

// Limiters.
assert_impl!(TokenBucket: Send, Sync, Unpin);
assert_impl!(Reservation<'static>: Send, Sync, Unpin);
assert_not_impl!(Reservation<'static>: Clone);
assert_impl!(limiter::Acquire<'static>: Send, Unpin);
assert_impl!(Bucket: Send, Sync);
assert_impl!(Exponential<String>: Send, Sync);
assert_impl!(limiter::MaxOf<str>: Send, Sync);

// Errors go where errors go.
assert_impl!(AddError<String>: std::error::Error, Send, Sync);
assert_impl!(AddError<String, Cell<u8>>: std::error::Error, Send);
assert_impl!(RefusedItem<'static, String>: std::error::Error, Send);
assert_impl!(GetError: std::error::Error, Send, Sync, Copy);
assert_impl!(GetError: std::error::Error, Send, Sync, Copy);
assert_impl!(NotHeld: std::error::Error, Send, Sync, Copy);
assert_impl!(BuildError: std::error::Error, Send, Sync);
assert_impl!(limiter::LimiterError: std::error::Error, Send, Sync);
assert_impl!(limiter::AcquireError: std::error::Error, Send, Sync);

// A guard says done once: none of these can be copied.
assert_not_impl!(Item<'static, String>: Clone);
assert_not_impl!(Get<'static, String>: Clone);
assert_not_impl!(Drain<'static, String>: Clone);

#[test]
fn auto_traits_are_asserted_by_compiling_this_file() {}
