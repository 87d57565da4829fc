//! A proxy between clients and the server, which breaks connections.

use crate::{Counts, LEASE, random};
use futures_util::future::{Either, select};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Passes all traffic to the server, except for what it cuts.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Number of client messages cut, of ten thousand.
    pub(crate) cuts: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) async fn start(address: &str, socket: PathBuf, cuts: u64, counts: Counts) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (cuts, seed) = (Arc::new(AtomicU64::new(cuts)), Arc::new(AtomicU64::new(7)));
        let share = cuts.clone();
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (counts, cuts, seed, socket) =
                    (counts.clone(), share.clone(), seed.clone(), socket.clone());
                tokio::spawn(async move {
                    if let Ok(to) = UnixStream::connect(&socket).await {
                        pass(from, to, &cuts, &counts, &seed).await;
                    }
                });
            }
        });
        Self { port, cuts }
    }
}

async fn pass(from: TcpStream, to: UnixStream, cuts: &AtomicU64, counts: &Counts, seed: &AtomicU64) {
    let (mut from, mut answers) = from.into_split();
    let (mut server, mut to) = to.into_split();
    let (silence, silent) = oneshot::channel::<()>();
    let back = tokio::spawn(async move {
        let copied = std::pin::pin!(tokio::io::copy(&mut server, &mut answers));
        // the server has ended the connection, or nothing is passed on any more; the client's end stays open meanwhile
        if let Either::Right((Ok(()), _)) = select(copied, silent).await {
            std::future::pending::<()>().await;
        }
    });
    let mut message = vec![0; 65536];
    while let Ok(length @ 1..) = from.read(&mut message).await {
        if random(seed) % 10_000 >= cuts.load(Relaxed) {
            if to.write_all(&message[..length]).await.is_err() {
                break;
            }
            continue;
        }
        match random(seed) % 16 {
            0..4 => counts.add("connection cut before a request"),
            4..8 => {
                counts.add("connection cut in the middle of a request");
                drop(to.write_all(&message[..length / 2]).await);
            }
            8 => {
                counts.add("connection that leads nowhere for three leases");
                let _ = silence.send(());
                tokio::time::sleep(LEASE * 3).await;
            }
            _ => {
                counts.add("connection cut between request and reply");
                let _ = silence.send(());
                drop(to.write_all(&message[..length]).await);
                drop(to.flush().await);
                // the server must have got it: what is not read yet is lost with the socket
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        break;
    }
    back.abort();
}
