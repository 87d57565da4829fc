//! Makes up for drops that could not have the queue's lock (`hold/later.rs`).

use crate::ending::{abandon_in_drop, done_in_drop, put_back};
use crate::hold::{Later, Shared};
use crate::panics::quietly;

impl<K, V> Shared<K, V> {
    /// Makes up for drops. Must not be called under the lock.
    pub(crate) fn make_up_for_drops(&self) {
        for later in self.take_laters() {
            quietly(|| self.make_up_for(later));
        }
    }

    fn make_up_for(&self, later: Later<K, V>) {
        match later {
            Later::Done(run) => done_in_drop(self, &mut Some(run), false),
            Later::End { run, mut value } => abandon_in_drop(self, &mut Some(run), &mut value, None),
            Later::PutBack { run, mut value } => put_back(self, &mut Some(run), &mut value, false),
            Later::Waiter(id) => self.leave_waiting(id),
            Later::Drain(place) => drop(self.leave_drain(place)),
            Later::Adder(ticket) => self.leave_room(ticket),
            Later::ShutDown => {
                self.shut_down(self.now());
            }
        }
    }
}
