//! Counts of loans. Users can leak loans, and so make each count grow for ever. If a count overflowed, a key
//! could be freed while a guard still refers to it. So a full count ends the process, like the reference
//! counts of `Rc`.

/// The largest count. It is small in unit tests, where counting to 2^32 would take
/// minutes.
pub(crate) const MOST: u32 = if cfg!(test) { 1_000 } else { u32::MAX };

/// Adds one. Ends the process if the count is full.
#[inline]
pub(crate) fn one_more(count: u32) -> u32 {
    if count == MOST {
        full();
    }
    count + 1
}

/// Ends the process. There is no `abort` without std, but a panic that is about to leave
/// a function with C's calling convention is one.
extern "C" fn full() -> ! {
    panic!("{MOST} guards of one key were leaked: one more could not be counted")
}

#[cfg(all(test, not(miri)))]
mod tests {
    extern crate std;

    use super::MOST;
    use crate::arena::Arena;
    use crate::machine::{Config, Core, Got, Limit, Trigger, TriggerOptions};
    use std::process::Command;
    use std::string::String;

    /// Runs this test again in a process of its own, which must end by `full`.
    fn ends_the_process(test: &str) {
        let this = std::env::current_exe().expect("the test's program");
        let test = std::format!("count::tests::{test}");
        let child =
            Command::new(this).args(["--exact", &test, "--nocapture"]).env("REQUEUE_LEAK", "1").output();
        let child = child.expect("the program starts");
        assert!(!child.status.success());
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(said.contains("one more could not be counted"), "{said}");
        assert!(said.contains("cannot unwind"), "it was aborted, not unwound: {said}");
    }

    /// Leaks a loan.
    fn leak<T>(_: T) {}

    fn leaks() -> bool {
        std::env::var_os("REQUEUE_LEAK").is_some()
    }

    #[test]
    fn a_key_that_was_lent_too_often_to_be_counted_ends_the_process() {
        if !leaks() {
            return ends_the_process("a_key_that_was_lent_too_often_to_be_counted_ends_the_process");
        }
        let mut arena = Arena::new(usize::MAX);
        let slot = arena.insert(7, 7, 0);
        // the first loan is not in the count
        for _ in 0..=MOST {
            leak(arena.lend(slot.into(), |flags| flags).0);
        }
        assert!(arena.is_lent(slot));
        leak(arena.lend(slot.into(), |flags| flags).0);
    }

    #[test]
    fn guards_that_are_inert_and_too_many_to_be_counted_end_the_process() {
        if !leaks() {
            return ends_the_process("guards_that_are_inert_and_too_many_to_be_counted_end_the_process");
        }
        let mut core = Core::<u32>::new(Config::default());
        for _ in 0..=MOST {
            core.trigger(&mut Trigger::new(7, None), 7, &TriggerOptions::NOW, &Limit::NONE).expect("open");
            let Got::Item(item) = core.get() else { panic!("7 is ready") };
            leak(item.run);
            assert!(core.done(&7, 7).is_ok());
        }
    }
}
