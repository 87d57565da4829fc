//! The write signal: a wake-up for the process that works on a file, when another process has written to it.
//!
//! A writer then opens SQLite's log for writing and closes it. On Linux the kernel reports that to the runner
//! (inotify), so that it need not poll. On other systems, and if the user has no watches left, [`WriteSignal::listen`]
//! returns `None`, and the runner polls often. (The log is used because no process locks it: closing the
//! database itself would end SQLite's locks.)

use crate::lock;
use std::fs::File;
use std::path::Path;

/// Wakes the process that works on the file.
pub(crate) fn send(path: &Path) {
    // A runner that hears nothing looks after a while.
    drop(File::options().write(true).open(lock::beside(path, "-wal")));
}

pub(crate) use system::WriteSignal;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use super::lock;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::thread::{Builder, JoinHandle};

    /// A listener for the write signal, until it is dropped.
    pub(crate) struct WriteSignal {
        /// Closed to end the listener.
        end: Option<UnixStream>,
        listener: Option<JoinHandle<()>>,
    }

    impl WriteSignal {
        /// Calls `on_signal` at each signal, from a separate thread. `None` if the system allows no more watches
        /// or threads.
        pub(crate) fn listen(path: &Path, on_signal: impl Fn() + Send + 'static) -> Option<Self> {
            let signals = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            inotify::add_watch(&signals, lock::beside(path, "-wal"), WatchFlags::CLOSE_WRITE).ok()?;
            let (end, ended) = UnixStream::pair().ok()?;
            let listener = Builder::new().name("requeue-bell".into());
            let listener = listener.spawn(move || listen(&signals, &ended, on_signal)).ok()?;
            Some(Self { end: Some(end), listener: Some(listener) })
        }
    }

    impl Drop for WriteSignal {
        fn drop(&mut self) {
            drop(self.end.take());
            if let Some(listener) = self.listener.take() {
                drop(listener.join());
            }
        }
    }

    fn listen(signals: &OwnedFd, ended: &UnixStream, on_signal: impl Fn()) {
        let mut events = [0; 4096];
        loop {
            let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(_) if fds[1].revents().is_empty() => {}
                Ok(_) | Err(_) => return,
            }
            // The contents of the events do not matter.
            while rustix::io::read(signals, &mut events).is_ok() {}
            on_signal();
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::path::Path;

    /// Not available on this system.
    pub(crate) enum WriteSignal {}

    impl WriteSignal {
        pub(crate) fn listen(_: &Path, _: impl Fn() + Send + 'static) -> Option<Self> {
            None
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn each_ring_is_heard_and_the_end_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        send(&path); // there is no log, and none is made for that
        assert!(!lock::beside(&path, "-wal").exists());
        std::fs::write(lock::beside(&path, "-wal"), "").unwrap();
        let (tell, told) = mpsc::channel();
        let write_signal = WriteSignal::listen(&path, move || tell.send(()).unwrap()).unwrap();
        for _ in 0..10 {
            send(&path);
            told.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        drop(write_signal);
        send(&path);
        assert!(told.recv().is_err());
    }
}
