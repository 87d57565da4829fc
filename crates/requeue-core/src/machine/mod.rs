//! The state machine: what a queue knows of its keys, and the effect of each call. A call may rely on the time that was passed
//! before it in this lock hold: a look comes after [`advance`](Core::advance), any other call with a reading after
//! [`begin`](Core::begin). Without a reading neither is called, and the time is the latest that was passed before.
//!
//! A key is in the table while there is a reason to know it: it is ready, waiting or held, its failures are on record, or a
//! guard still refers to it. When the last reason goes, the key is dropped.
//!
//! ```text
//!             add                  get                  done
//!   (idle) ─────────► ready ──────────────► held ─────────────────► (idle)
//!     │                ▲ ▲                  │  │
//!     │ add_after      │ │ done, retry      │  │ add, timer fires
//!     ▼   timer fires  │ └─ held + dirty ◄──┼──┘
//!   waiting ───────────┘                    │
//!     ▲                                     │ retry: with the flag BACKOFF
//!     └─────────────────────────────────────┘
//! ```
//!
//! `waiting` is independent of the rest: a key may have a timer and be ready, held or dirty.
//!
//! The queue itself goes `Open → Closed → ShutDown`, or straight to the last. Closed: triggers from outside are refused, holders
//! may still retry. ShutDown: all are refused.
//!
//! `state.rs` has the fields, `options.rs` and `answers.rs` what comes in and goes out. Each other file is a part of the
//! calls: it imports these, and no other part.

mod advance;
mod answers;
mod asking;
mod awaited;
mod awaiters;
mod backoff;
mod bound;
mod failures;
mod flags;
mod leave;
mod ledger;
mod live;
mod observe;
mod options;
mod pause;
mod pending_work;
mod publish;
mod restore;
mod run;
mod shutdown;
mod snapshot;
mod state;
mod timer;
mod times;
mod trigger;
mod unfinished;
mod window;
mod windows;

pub use self::answers::{
    Accepted, Added, Cancelled, Counts, DrainBase, Drained, Ended, Got, Handout, KeyGauges, KeyState, NoRun,
    NotHeld, Only, Paused, Refused, RefusedEnd, RunEnd, RunRef, ShutDown, Stats, UnfinishedKey,
    UnfinishedReason,
};
pub use self::awaiters::{Awaiter, RunAnswer};
pub use self::options::{
    Asking, Bound, Config, Debounce, Delay, How, InBackoff, Limit, Merge, Policy, Restored, RetryDelay,
    Trigger, TriggerOptions, WaitingKeys,
};
pub use self::state::Core;
