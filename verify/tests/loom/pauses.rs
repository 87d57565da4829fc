//! Pause and resume, of the queue and of a key, concurrent with waiting, adding and shutdowns.

use crate::support::{bounded, every, hold, queue, queue_with_groups, take, taker};
use loom::thread;
use requeue::Scope;

#[test]
fn loom_b7_a_resume_ends_the_waits_of_getters_whenever_they_began() {
    bounded(|| {
        let (q, _) = queue();
        q.pause(Scope::Queue);
        q.add(1).expect("open");
        q.add(2).expect("open");
        let getters = [(); 2].map(|()| {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        });
        assert!(q.resume(Scope::Queue));
        let held = getters.map(|getter| getter.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}

/// The key comes before the pause, during it, or after the resume.
#[test]
fn loom_b7_a_key_that_is_added_beside_pause_and_resume_is_handed_out() {
    bounded(|| {
        let (q, _) = queue();
        let getter = taker(&q);
        let pauses = {
            let q = q.clone();
            thread::spawn(move || {
                assert!(q.pause(Scope::Queue));
                assert!(q.resume(Scope::Queue));
            })
        };
        q.add(1).expect("open");
        assert_eq!(getter.join().expect("no panic"), Some(1));
        pauses.join().expect("no panic");
    });
}

/// The redundant add takes no lock.
#[test]
fn loom_b7_a_key_paused_beside_an_add_is_handed_out_once_it_is_resumed() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        q.add(1).expect("open");
        let adds = {
            let q = q.clone();
            thread::spawn(move || q.add(1).expect("open"))
        };
        assert!(q.pause(Scope::Key(1)));
        assert!(q.try_get().is_err(), "a paused key was handed out");
        adds.join().expect("no panic");
        assert_eq!(q.len(), 1);
        let getter = taker(&q);
        assert!(q.resume(Scope::Key(&1)));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// The pause is refused, or lifted: the getter gets the key, and then the end.
#[test]
fn loom_b7_a_shutdown_lifts_a_pause_that_comes_beside_it() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let getter = {
            let q = q.clone();
            thread::spawn(move || (take(&q), take(&q)))
        };
        let pauses = {
            let q = q.clone();
            thread::spawn(move || {
                q.pause(Scope::Queue);
                q.pause(Scope::Key(1));
            })
        };
        q.shut_down();
        assert_eq!(getter.join().expect("no panic"), (Some(1), None));
        pauses.join().expect("no panic");
        assert!(!q.paused(Scope::Queue) && q.state(&1).is_none());
    });
}

/// The key comes before the pause of its group, during it, or after the resume.
#[test]
fn loom_b7_a_group_is_paused_and_resumed_beside_a_getter_that_waits() {
    bounded(|| {
        let q = queue_with_groups();
        let getter = taker(&q);
        let pauses = {
            let q = q.clone();
            thread::spawn(move || {
                assert!(q.pause(Scope::GroupOf(1)));
                assert!(q.resume(Scope::GroupOf(&2)));
            })
        };
        q.add(1).expect("open");
        assert_eq!(getter.join().expect("no panic"), Some(1));
        pauses.join().expect("no panic");
        assert!(!q.paused(Scope::GroupOf(&1)));
    });
}
