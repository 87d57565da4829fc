//! A million orders, each closed thirty minutes after its creation unless it is
//! paid: a queue of order numbers with `add_after`, on a clock that the program
//! steps itself. Two simulated hours take as long as the work in them.
//!
//! ```text
//! cargo run --release -p requeue-examples --example order_timeouts
//! ```

use requeue::{Clock, FakeClock, Instant, WorkQueue};
use std::error::Error;
use std::time::Duration;

const ORDERS: u32 = 1_000_000;
/// Orders that are placed in each simulated second.
const A_SECOND: u32 = 200;
const TIME_OUT: Duration = Duration::from_secs(30 * 60);
/// A customer takes at most this long to pay.
const SLOWEST_PAYMENT: u64 = 40 * 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Paid,
    Closed,
}

struct Order {
    created: Instant,
    state: State,
}

/// Time of the customer's payment, in seconds after the creation; a third never pays. It only looks random,
/// so that every run of this program is the same.
fn pays_after(order: u32) -> Option<u64> {
    let mixed = u64::from(order).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed % 3 != 0).then(|| 1 + mixed / 3 % SLOWEST_PAYMENT)
}

fn main() -> Result<(), Box<dyn Error>> {
    let began = std::time::Instant::now();
    let clock = FakeClock::new();
    let q = WorkQueue::<u32>::builder().clock(clock.clone()).build()?;

    let mut orders: Vec<Order> = Vec::with_capacity(ORDERS as usize);
    let last_creation = u64::from(ORDERS / A_SECOND);
    let mut payments = vec![Vec::new(); (last_creation + SLOWEST_PAYMENT + 1) as usize];
    let (mut paid, mut closed, mut too_late, mut most_waiting) = (0u32, 0u32, 0u32, 0);

    for second in 0..payments.len() {
        let now = clock.now();

        // Looks at the due keys: the key says which order, the order says the rest.
        while let Ok(item) = q.try_get() {
            let order = &mut orders[*item.key() as usize];
            assert_eq!(now.saturating_since(order.created), TIME_OUT, "not early, not late");
            if order.state == State::Open {
                order.state = State::Closed;
                closed += 1;
            }
        }
        // New orders come in, and each gets its timer.
        if orders.len() < ORDERS as usize {
            for _ in 0..A_SECOND {
                let number = orders.len() as u32;
                orders.push(Order { created: now, state: State::Open });
                q.add_after(number, TIME_OUT)?;
                if let Some(after) = pays_after(number) {
                    payments[second + after as usize].push(number);
                }
            }
        }
        // Customers pay. An order that is closed by then stays closed.
        for number in std::mem::take(&mut payments[second]) {
            let order = &mut orders[number as usize];
            if order.state == State::Open {
                order.state = State::Paid;
                paid += 1;
            } else {
                too_late += 1;
            }
        }
        if second % 1200 == 0 {
            let (waiting, minutes) = (q.stats().waiting, second / 60);
            println!("minute {minutes:>3}: {waiting:>7} waiting, {paid:>7} paid, {closed:>7} closed");
        }
        most_waiting = most_waiting.max(q.stats().waiting);
        clock.advance(Duration::from_secs(1));
    }

    println!(
        "{ORDERS} orders: {paid} paid in time, {closed} closed, {too_late} payments came too late; \
         {:?} simulated in {:.1?}, at most {most_waiting} timers at once",
        clock.now().saturating_since(Instant::ORIGIN),
        began.elapsed(),
    );

    assert_eq!(paid + closed, ORDERS, "no order was forgotten");
    for (number, order) in (0..).zip(&orders) {
        let in_time = pays_after(number).is_some_and(|after| after < TIME_OUT.as_secs());
        let expected = if in_time { State::Paid } else { State::Closed };
        assert_eq!(order.state, expected, "order {number}");
    }
    assert_eq!(q.stats().known, 0, "nothing is left in the queue");
    // Half an hour's orders, no more: what is due is taken before new orders come.
    assert_eq!(most_waiting, A_SECOND as usize * TIME_OUT.as_secs() as usize);
    Ok(())
}
