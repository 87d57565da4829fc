//! Outputs that outlive the run: a program may leave processes behind in the background. The run still ends
//! with the program; their further output is passed on line by line until they close it or the command ends.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::output::console::Console;
use crate::output::relay::Output;
use crate::system::pipe::pipe;

/// Passes outputs to one thread, which is started with the first of them.
#[derive(Debug)]
pub(crate) struct OrphanOutput {
    console: Arc<Console>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Outputs that the thread has not seen yet.
    fresh: Vec<Output>,
    /// Wakes the thread, which exists from the first output on.
    wake_pipe: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl OrphanOutput {
    pub(crate) fn new(console: Arc<Console>) -> Self {
        Self { console, shared: Arc::default() }
    }

    /// Continues this output. If no thread can be started it is closed.
    pub(crate) fn take(&self, output: Output) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.fresh.push(output);
        match &shared.wake_pipe {
            Some(wake_pipe) => {
                // A full pipe wakes it already.
                let _ = rustix::io::write(wake_pipe, b"!");
            }
            None => {
                let Ok((heard, wake_pipe)) = pipe() else { return };
                let _ = rustix::io::ioctl_fionbio(&wake_pipe, true);
                shared.wake_pipe = Some(wake_pipe);
                let (theirs, console) = (Arc::clone(&self.shared), Arc::clone(&self.console));
                shared.thread = std::thread::Builder::new()
                    .name("lingering output".to_owned())
                    .spawn(move || relay(&heard, &theirs, &console))
                    .ok();
            }
        }
    }

    /// Passes on the available output, and closes the rest.
    pub(crate) fn end(&self) {
        let (wake_pipe, thread) = {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            (shared.wake_pipe.take(), shared.thread.take())
        };
        drop(wake_pipe);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn relay(heard: &OwnedFd, shared: &Mutex<Shared>, console: &Console) {
    let mut scratch = vec![0; 16 * 1024];
    let mut outputs: Vec<Output> = Vec::new();
    let mut last_round = false;
    loop {
        outputs.append(&mut shared.lock().unwrap_or_else(PoisonError::into_inner).fresh);
        let mut fds = vec![PollFd::from_borrowed_fd(heard.as_fd(), PollFlags::IN)];
        fds.extend(outputs.iter().map(|o| PollFd::new(&o.fd, PollFlags::IN)));
        let now = Timespec::default();
        if poll(&mut fds, last_round.then_some(&now)).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut at = 0;
        outputs.retain_mut(|output| {
            at += 1;
            let go_on = !ready[at] || output.read(&mut scratch, console, &mut ()).is_some();
            if !go_on || last_round {
                output.relay.finish(console, &mut ());
            }
            go_on
        });
        if last_round {
            return;
        }
        if ready[0] {
            last_round = !matches!(rustix::io::read(heard, &mut [0; 64]), Ok(1..));
        }
    }
}
