//! Channels: what it costs to hand keys over without knowing them. The floor below
//! every queue that de-duplicates.
//!
//! All are unbounded, since a queue of keys never makes its producers wait. A `None` tells one consumer the
//! end, so that no end has to be kept in a lock.

use requeue_bench::Key;
use requeue_bench::queues::{AsyncFifo, Fifo};
use std::future::Future;

/// A channel of threads and tasks.
macro_rules! channel {
    ($Channel:ident, $name:literal, $Tx:ident, $Rx:ident, $krate:ident,
     $send:expr, $recv:expr, $recv_async:expr) => {
        #[doc = $name]
        #[derive(Debug)]
        pub struct $Channel<K> {
            tx: $krate::$Tx<Option<K>>,
            rx: $krate::$Rx<Option<K>>,
        }

        impl<K: Key> Fifo for $Channel<K> {
            const NAME: &'static str = $name;
            type Key = K;
            type Item<'q> = K;

            fn new() -> Self {
                let (tx, rx) = $krate::unbounded();
                Self { tx, rx }
            }
            #[inline]
            fn add(&self, key: K) {
                let _ = $send(&self.tx, Some(key));
            }
            #[inline]
            fn get(&self) -> Option<K> {
                $recv(&self.rx).ok().flatten()
            }
            #[inline]
            fn key(item: &K) -> &K {
                item
            }
            #[inline]
            fn done(&self, _: K) {}
            fn shut_down(&self, consumers: usize) {
                (0..consumers).for_each(|_| drop($send(&self.tx, None)));
            }
        }

        impl<K: Key> AsyncFifo for $Channel<K> {
            #[inline]
            fn get_async(&self) -> impl Future<Output = Option<K>> + Send {
                let received = $recv_async(&self.rx);
                async { received.await.ok().flatten() }
            }
        }
    };
}

channel!(
    AsyncChannel,
    "async-channel",
    Sender,
    Receiver,
    async_channel,
    async_channel::Sender::try_send,
    async_channel::Receiver::recv_blocking,
    async_channel::Receiver::recv
);
channel!(
    Flume,
    "flume",
    Sender,
    Receiver,
    flume,
    flume::Sender::send,
    flume::Receiver::recv,
    flume::Receiver::recv_async
);
channel!(
    Kanal,
    "kanal",
    Sender,
    Receiver,
    kanal,
    kanal::Sender::send,
    kanal::Receiver::recv,
    kanal_recv_async
);

fn kanal_recv_async<K>(rx: &kanal::Receiver<K>) -> kanal::ReceiveFuture<'_, K> {
    rx.as_async().recv()
}

/// crossbeam's channel, for threads only.
#[derive(Debug)]
pub struct Crossbeam<K> {
    tx: crossbeam_channel::Sender<Option<K>>,
    rx: crossbeam_channel::Receiver<Option<K>>,
}

impl<K: Key> Fifo for Crossbeam<K> {
    const NAME: &'static str = "crossbeam";
    type Key = K;
    type Item<'q> = K;

    fn new() -> Self {
        let (tx, rx) = crossbeam_channel::unbounded();
        Self { tx, rx }
    }
    #[inline]
    fn add(&self, key: K) {
        let _ = self.tx.send(Some(key));
    }
    #[inline]
    fn get(&self) -> Option<K> {
        self.rx.recv().ok().flatten()
    }
    #[inline]
    fn key(item: &K) -> &K {
        item
    }
    #[inline]
    fn done(&self, _: K) {}
    fn shut_down(&self, consumers: usize) {
        (0..consumers).for_each(|_| drop(self.tx.send(None)));
    }
}
