//! Minimal HTTP server for /metrics and /healthz; bounded connections and time.
//!
//! One thread serves all connections, so a slow client blocks neither other clients nor a worker. A
//! connection is one request and its answer; it is closed after [`PATIENCE`], and with more than [`CLIENTS`]
//! the oldest is closed. So a client that opens many, or sends a byte per second, takes a bounded number of
//! descriptors and little memory, and a scrape in between is served.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::system::limits::CLIENTS;

/// Time limit of a connection, from its first byte to its last: that of a scrape of Prometheus.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum size of a request's line and headers. Those of a Prometheus are a few hundred bytes.
const LONGEST: usize = 8 * 1024;

/// Maximum number of headers of a request.
const HEADERS: usize = 64;

/// Pause of accepting after the system had no room for a further connection.
const PAUSE: Duration = Duration::from_secs(1);

/// An answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Page {
    /// A line of text.
    pub(crate) fn text(status: &'static str, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }
}

/// A running server; dropping it ends it and closes its connections.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Binds the address.
///
/// # Errors
///
/// The address and the problem with it.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{address} is in use: give another port, or 0 for one that is free")
        }
        _ => format!("{address}: {e}"),
    })
}

impl Server {
    /// Serves `page`, a function of the request's path.
    ///
    /// # Errors
    ///
    /// If the system has no pipe or no thread left.
    pub(crate) fn start(
        listener: TcpListener,
        page: impl Fn(&str) -> Page + Send + 'static,
    ) -> io::Result<Self> {
        let (stopped, stop) = crate::system::pipe::pipe()?;
        let thread = std::thread::Builder::new().name("http".to_owned());
        let thread = thread.spawn(move || {
            let clients = Vec::new();
            Pages { listener, stopped, page, clients, shut_until: None }.serve();
        });
        let thread = thread.map_err(|e| crate::system::limits::no_thread(&e))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Pages<F> {
    listener: TcpListener,
    /// Hangs up when the server is to end.
    stopped: OwnedFd,
    page: F,
    /// In the order in which they came.
    clients: Vec<Client>,
    /// Until when no connection is accepted, after the system had no room for one.
    shut_until: Option<Instant>,
}

struct Client {
    stream: TcpStream,
    until: Instant,
    state: State,
}

enum State {
    /// The request so far.
    Asks(Vec<u8>),
    /// The answer, and the length sent so far.
    Hears(Vec<u8>, usize),
    /// It has the whole answer. Its further input is discarded: closing before it was read would destroy the
    /// answer.
    Leaves,
    Gone,
}

impl<F: Fn(&str) -> Page> Pages<F> {
    fn serve(&mut self) {
        loop {
            let now = Instant::now();
            self.clients.retain(|client| client.until > now && !matches!(client.state, State::Gone));
            self.shut_until = self.shut_until.filter(|until| *until > now);
            let next = self.clients.iter().map(|client| client.until).chain(self.shut_until).min();
            let Ok(ready) = self.wait(next.map(|at| at - now)) else { return };
            if ready.stopped {
                return;
            }
            for (client, _) in self.clients.iter_mut().zip(ready.clients).filter(|(_, ready)| *ready) {
                client.go_on(&self.page);
            }
            if ready.listener {
                self.let_in();
            }
        }
    }

    /// Waits until a connection can continue.
    fn wait(&self, limit: Option<Duration>) -> io::Result<Ready> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.stopped.as_fd(), PollFlags::IN)];
        let open = if self.shut_until.is_none() { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), open));
        for client in &self.clients {
            let wanted = match client.state {
                State::Hears(..) => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
        }
        // a limit is 10 seconds at most
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(Ready {
            stopped: is_ready(&fds[0]),
            listener: is_ready(&fds[1]) && self.shut_until.is_none(),
            clients: fds[2..].iter().map(is_ready).collect(),
        })
    }

    fn let_in(&mut self) {
        // not all at once, so that who was let in is heard before others oust him
        for _ in 0..CLIENTS / 4 {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.clients.len() >= CLIENTS {
                        self.clients.remove(0);
                    }
                    let until = Instant::now() + PATIENCE;
                    self.clients.push(Client { stream, until, state: State::Asks(Vec::new()) });
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // of one client, who has gone again
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.shut_until = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }
}

struct Ready {
    stopped: bool,
    listener: bool,
    clients: Vec<bool>,
}

impl Client {
    fn go_on(&mut self, page: &impl Fn(&str) -> Page) {
        let went = match &mut self.state {
            State::Asks(_) => self.hear(page),
            State::Hears(..) => self.tell(),
            State::Leaves | State::Gone => self.discard(),
        };
        match went {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.state = State::Gone,
        }
    }

    /// Reads the available part of the request.
    fn hear(&mut self, page: &impl Fn(&str) -> Page) -> io::Result<()> {
        let State::Asks(request) = &mut self.state else { return Ok(()) };
        let mut chunk = [0; 1024];
        let read = self.stream.read(&mut chunk)?;
        if read == 0 {
            self.state = State::Gone;
            return Ok(());
        }
        request.extend_from_slice(&chunk[..read]);
        if let Some(answer) = answer(request, page) {
            self.state = State::Hears(answer, 0);
            // most answers fit into what the system keeps for a socket
            return self.tell();
        }
        Ok(())
    }

    fn tell(&mut self) -> io::Result<()> {
        let State::Hears(answer, sent) = &mut self.state else { return Ok(()) };
        *sent += self.stream.write(&answer[*sent..])?;
        if *sent == answer.len() {
            self.stream.shutdown(std::net::Shutdown::Write)?;
            self.state = State::Leaves;
        }
        Ok(())
    }

    fn discard(&mut self) -> io::Result<()> {
        let mut chunk = [0; 1024];
        if self.stream.read(&mut chunk)? == 0 {
            self.state = State::Gone;
        }
        Ok(())
    }
}

/// The answer to a request, once it is complete or invalid.
fn answer(request: &[u8], page: &impl Fn(&str) -> Page) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let whole = match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => true,
        Ok(httparse::Status::Partial) if request.len() <= LONGEST => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(render(
                &Page::text("431 Request Header Fields Too Large", "the request is too long"),
                "",
                true,
            ));
        }
        Err(_) => false,
    };
    let (true, Some(method), Some(target)) = (whole, parsed.method, parsed.path) else {
        return Some(render(&Page::text("400 Bad Request", "this is not HTTP/1.1"), "", true));
    };
    if !matches!(method, "GET" | "HEAD") {
        return Some(render(&Page::text("405 Method Not Allowed", "GET it"), "Allow: GET, HEAD\r\n", true));
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    Some(render(&page(path), "", method == "GET"))
}

fn render(page: &Page, more: &str, with_body: bool) -> Vec<u8> {
    let Page { status, content_type, body } = page;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{more}\r\n"
    );
    let mut answer = head.into_bytes();
    if with_body {
        answer.extend_from_slice(body.as_bytes());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: &str) -> Option<String> {
        let page = |path: &str| Page::text("200 OK", path);
        answer(request.as_bytes(), &page).map(|answer| String::from_utf8(answer).unwrap())
    }

    #[test]
    fn a_request_is_answered_when_it_is_there_in_full() {
        let whole = "GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(asked(&whole[..end]), None, "{end} bytes");
        }
        assert_eq!(
            asked(whole).unwrap(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\n\
             Connection: close\r\n\r\n/metrics\n"
        );
        assert!(asked("GET / HTTP/1.0\r\n\r\n").unwrap().ends_with("\r\n\r\n/\n"));
    }

    #[test]
    fn a_head_has_no_body_and_the_length_of_it() {
        let head = asked("HEAD /healthz HTTP/1.1\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 9\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("\u{16}\u{3}\u{1}TLS\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/2.0\r\n\r\n", "400 Bad Request"),
            ("GET\r\n\r\n", "400 Bad Request"),
            (&format!("GET /{} HTTP/1.1\r\n", "x".repeat(LONGEST)), "431 "),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1)), "431 "),
        ] {
            let answer = asked(request).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:.40}: {answer}");
        }
    }
}
