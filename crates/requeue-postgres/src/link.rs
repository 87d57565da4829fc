//! [`Link`]: a connection that is re-established when it breaks, and the meaning of its errors.

use crate::typed::{Param, with_types};
use futures_util::future::{Either, select};
use requeue_engine::EngineError;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Row, Statement};

/// Time after which an unanswered call has an unknown outcome, and its connection is given up.
pub(crate) const ANSWERS: Duration = Duration::from_secs(10);

/// Time after which an unanswered call is taken to wait for something.
const IS_STUCK: Duration = Duration::from_secs(1);

pub(crate) const SILENT: &str = "the server does not answer";

/// The background part of a connection: driven by a task of its own.
pub(crate) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Cancels the server's work for a connection, from outside.
pub(crate) type Cancel = Pin<Box<dyn Future<Output = ()> + Send>>;
type Connecting = Pin<Box<dyn Future<Output = Result<(Client, Driver, Cancel), Failed>> + Send>>;
/// The hosts of a connection string, each with all other options of the string.
pub(crate) type Hosts = Arc<[Config]>;
/// Makes connections. It gets the channel for notifications.
pub(crate) type ConnectFn = Arc<dyn Fn(Hosts, Option<Heard>) -> Connecting + Send + Sync>;
/// Callback for a notification's payload.
pub(crate) type Heard = Arc<dyn Fn(&str) + Send + Sync>;

/// How a connection handles notifications.
#[derive(Clone)]
pub(crate) struct Hearing {
    pub(crate) heard: Heard,
    /// Whether a new connection is to listen.
    pub(crate) listens: Arc<AtomicBool>,
}

/// The effect of a failed call, and the reason in words.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// Nothing has changed.
    Not(Arc<str>),
    /// Nothing has changed: the server can't keep the given data.
    Data(Arc<str>),
    /// Nothing has changed: the server has no queue of that number.
    Gone(Arc<str>),
    /// It may have happened.
    Maybe(Arc<str>),
    /// The owner, or the run, has lost its lease.
    LeaseLost,
}

impl From<Failed> for EngineError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Not(why) | Failed::Data(why) | Failed::Gone(why) => Self::NotApplied((*why).into()),
            Failed::Maybe(why) => Self::Unknown((*why).into()),
            Failed::LeaseLost => Self::LeaseLost,
        }
    }
}

/// The server's message, with its detail: tokio-postgres shows only "db error".
pub(crate) fn error_text(error: &Error) -> Arc<str> {
    match error.as_db_error() {
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}").into(),
            None => error.to_string().into(),
        },
        Some(said) => {
            let hint = match said.code() {
                code if *code == SqlState::INVALID_SCHEMA_NAME || *code == SqlState::UNDEFINED_FUNCTION => {
                    "; was the schema made? Call migrate(), or `requeue migrate`"
                }
                code if *code == SqlState::INVALID_SQL_STATEMENT_NAME
                    || *code == SqlState::DUPLICATE_PSTATEMENT =>
                {
                    "; is there a pooler in transaction mode? Say pool_mode=transaction in the connection string"
                }
                _ => "",
            };
            match said.code().code() {
                // the schema's own functions say all that there is to say
                code if code.starts_with("RQ") => said.message().into(),
                code => format!("PostgreSQL: {} ({code}){hint}", said.message()).into(),
            }
        }
    }
}

impl Failed {
    /// The error for a server that does not answer, before any change was requested.
    pub(crate) fn silent() -> Self {
        Self::Not(SILENT.into())
    }

    /// Whether the server's error has this code.
    pub(crate) fn is(&self, state: &SqlState) -> bool {
        matches!(self, Self::Not(why) if why.contains(&format!("({})", state.code())))
    }

    /// The reason in words; `None` if the server works as it should.
    pub(crate) fn why(&self) -> Option<String> {
        match self {
            Self::Not(why) | Self::Data(why) | Self::Gone(why) | Self::Maybe(why) => Some(why.to_string()),
            Self::LeaseLost => None,
        }
    }

    pub(crate) fn of(error: &Error) -> Self {
        let Some(said) = error.as_db_error() else {
            // the connection broke, or the client could not make sense of the answer
            return Self::Maybe(error_text(error));
        };
        match said.code().code() {
            "RQ001" | "RQ002" => Self::LeaseLost,
            "RQ004" => Self::Gone(error_text(error)),
            // the session was ended from outside, perhaps between commit and answer
            code if code.starts_with("08") || code.starts_with("57P") => Self::Maybe(error_text(error)),
            // a key that is too long for its index, or an invalid value of a type
            code if code == "54000" || code.starts_with("22") => Self::Data(error_text(error)),
            // the statement failed, and with it its transaction
            _ => Self::Not(error_text(error)),
        }
    }
}

/// A connection, made when needed.
pub(crate) struct Link {
    hosts: Hosts,
    connect_fn: ConnectFn,
    hearing: Option<Hearing>,
    statements: Statements,
    live: Option<Arc<Live>>,
    /// The task that makes the next connection. A caller may stop waiting before it has ended; the next
    /// caller continues to wait.
    connecting: Option<JoinHandle<Result<Arc<Live>, Failed>>>,
    /// Statements prepared on that connection.
    prepared: HashMap<&'static str, Statement>,
    /// Whether `requeue.epoch` was called on it.
    is_met: bool,
}

/// How statements are sent.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Statements {
    /// Each is prepared once per connection. That costs the server the least: a look-up takes half as long.
    Prepared,
    /// Each is sent in full: each transaction may use another session behind the connection.
    Whole,
}

struct Live {
    client: Client,
    driver: JoinHandle<()>,
    cancel: Mutex<Option<Cancel>>,
    /// The outcome of a statement on it is unknown, so it is not used again.
    given_up: AtomicBool,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Live {
    /// Interprets the answer to a statement. A connection with an unknown outcome is given up.
    fn judge<T>(&self, answer: Result<Result<T, Error>, Elapsed>, limit: Duration) -> Result<T, Failed> {
        let failed = match answer {
            Ok(Ok(said)) => return Ok(said),
            Ok(Err(e)) => {
                if e.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                    // the name of the host may lead to another server by now
                    self.give_up();
                }
                Failed::of(&e)
            }
            Err(_) => {
                // with a short lease, the work for the queue may just take longer than the limit
                if limit >= IS_STUCK {
                    self.cancels();
                }
                Failed::Maybe(SILENT.into())
            }
        };
        if matches!(failed, Failed::Maybe(_)) {
            self.give_up();
        }
        Err(failed)
    }

    /// Cancels the statement. The session may wait for a lock, or for an unreachable replica. It would
    /// continue without us, and each call would leave one more behind.
    fn cancels(&self) {
        if let Some(cancel) = self.cancel.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(tokio::spawn(tokio::time::timeout(ANSWERS, cancel)));
        }
    }

    fn give_up(&self) {
        self.given_up.store(true, Relaxed);
        self.driver.abort();
    }
}

/// A statement ready to be sent, and its connection. The server executes statements of a connection one after
/// another, in the order in which the futures of their calls were first polled.
pub(crate) struct Call {
    live: Arc<Live>,
    ready: Ready,
}

enum Ready {
    Prepared(Statement),
    Whole(&'static str),
}

impl Call {
    async fn sends(&self, params: &[&dyn Param]) -> Result<Vec<Row>, Error> {
        let client = &self.live.client;
        match &self.ready {
            Ready::Prepared(statement) => {
                let params: Vec<_> = params.iter().map(|param| param.sql()).collect();
                client.query(statement, &params).await
            }
            Ready::Whole(sql) => client.query_typed(sql, &with_types(params)).await,
        }
    }

    /// Executes the statement as a transaction of its own, with this time limit for the answer.
    pub(crate) async fn query(&self, params: &[&dyn Param], limit: Duration) -> Result<Vec<Row>, Failed> {
        self.live.judge(tokio::time::timeout(limit, self.sends(params)).await, limit)
    }

    /// Like [`query`](Self::query), with the time limit [`ANSWERS`]. Sends the statement `behind` directly
    /// after this one, and does not wait for its answer.
    pub(crate) async fn query_before(
        &self,
        params: &[&dyn Param],
        behind: &Self,
        its_params: &[&dyn Param],
    ) -> Result<Vec<Row>, Failed> {
        let answer = async {
            let first = std::pin::pin!(self.sends(params));
            let second = std::pin::pin!(behind.sends(its_params));
            // the first is polled first, so that it is sent first
            match select(first, second).await {
                Either::Left((answer, _)) => answer,
                Either::Right((_, first)) => first.await,
            }
        };
        self.live.judge(tokio::time::timeout(ANSWERS, answer).await, ANSWERS)
    }
}

/// Prepares a session for use.
async fn begin(connected: Connecting, hears: bool, statements: Statements) -> Result<Arc<Live>, Failed> {
    let begins = async {
        let (client, driver, cancel) = connected.await?;
        let (driver, cancel) = (tokio::spawn(driver), Mutex::new(Some(cancel)));
        let live = Live { client, driver, cancel, given_up: AtomicBool::new(false) };
        if statements == Statements::Prepared {
            // At a higher level, which a role or a database may have, adds and claims of the same keys would fail. What is set behind
            // a pooler would be another client's.
            let set = "set default_transaction_isolation = 'read committed'";
            live.client.batch_execute(set).await.map_err(|e| Failed::Not(error_text(&e)))?;
        }
        if hears {
            // if this is refused, go on without it: every process also looks once a second
            drop(live.client.batch_execute("listen requeue").await);
        }
        Ok(Arc::new(live))
    };
    tokio::time::timeout(ANSWERS, begins).await.unwrap_or_else(|_| Err(Failed::silent()))
}

impl Link {
    pub(crate) fn new(
        hosts: Hosts,
        connect_fn: ConnectFn,
        hearing: Option<Hearing>,
        statements: Statements,
    ) -> Self {
        Self {
            hosts,
            connect_fn,
            hearing,
            statements,
            live: None,
            connecting: None,
            prepared: HashMap::new(),
            is_met: false,
        }
    }

    /// The connection, if it stands.
    fn live(&self) -> Option<Arc<Live>> {
        self.live.clone().filter(|live| !live.given_up.load(Relaxed) && !live.client.is_closed())
    }

    /// Whether the connection stands.
    pub(crate) fn is_up(&self) -> bool {
        self.live().is_some()
    }

    /// Makes the connection if there is none. If this fails nothing was sent.
    pub(crate) async fn connect(&mut self) -> Result<(), Failed> {
        self.connected().await.map(drop)
    }

    async fn connected(&mut self) -> Result<Arc<Live>, Failed> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        self.hang_up();
        let connecting = self.connecting.get_or_insert_with(|| {
            let heard = self.hearing.as_ref().map(|it| it.heard.clone());
            let hears = self.hearing.as_ref().is_some_and(|it| it.listens.load(Relaxed));
            tokio::spawn(begin((self.connect_fn)(self.hosts.clone(), heard), hears, self.statements))
        });
        let connected = connecting.await;
        self.connecting = None;
        let live = connected.map_err(|e| Failed::Not(e.to_string().into()))??;
        self.live = Some(live.clone());
        self.is_met = false;
        Ok(live)
    }

    /// Calls `requeue.epoch` if that was not done on this connection: the server may have been replaced.
    pub(crate) async fn meets(&mut self) -> Result<(), Failed> {
        if !self.is_up() || !self.is_met {
            self.query("select requeue.epoch()", &[]).await?;
            self.is_met = true;
        }
        Ok(())
    }

    /// Gives the connection up, even with statements on it. The next call makes one.
    pub(crate) fn hang_up(&mut self) {
        if let Some(live) = self.live.take() {
            live.give_up();
        }
        self.prepared.clear();
    }

    /// A statement ready to be sent. If this fails nothing was done.
    pub(crate) async fn call(&mut self, sql: &'static str) -> Result<Call, Failed> {
        let live = self.connected().await?;
        if self.statements == Statements::Whole {
            return Ok(Call { live, ready: Ready::Whole(sql) });
        }
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let prepared = tokio::time::timeout(ANSWERS, live.client.prepare(sql)).await;
                let statement = match prepared {
                    Ok(Ok(statement)) => statement,
                    Ok(Err(e)) => return Err(Failed::Not(error_text(&e))),
                    Err(_) => {
                        self.hang_up();
                        return Err(Failed::silent());
                    }
                };
                self.prepared.insert(sql, statement.clone());
                statement
            }
        };
        Ok(Call { live, ready: Ready::Prepared(statement) })
    }

    /// One statement, which is one transaction.
    pub(crate) async fn query(
        &mut self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, Failed> {
        self.call(sql).await?.query(params, ANSWERS).await
    }

    /// Like [`query`](Self::query), with a limit for the whole call, including a connection that must be
    /// made. Making it continues after the limit, for the next call.
    pub(crate) async fn query_for(
        &mut self,
        sql: &'static str,
        params: &[&dyn Param],
        limit: Duration,
    ) -> Result<Vec<Row>, Failed> {
        let begun = Instant::now();
        let Ok(call) = tokio::time::timeout(limit, self.call(sql)).await else {
            self.hang_up();
            return Err(Failed::silent());
        };
        call?.query(params, limit.saturating_sub(begun.elapsed())).await
    }

    /// Several statements in one transaction.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<(), Failed> {
        let live = self.connected().await?;
        live.judge(Ok(live.client.batch_execute(sql).await), ANSWERS)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use tokio_postgres::NoTls;

    const LONG: Duration = Duration::from_secs(300);

    /// A server that accepts connections when permitted, and then reads and answers nothing. It reports each
    /// connection.
    pub(crate) fn silent_server() -> (u16, Receiver<()>, Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let ((tells, comes), (lets_in, may)) = (channel(), channel());
        std::thread::spawn(move || {
            let mut all: Vec<TcpStream> = Vec::new();
            for client in listener.incoming() {
                let mut client = client.expect("it connects");
                assert!(client.read(&mut [0; 1024]).expect("it is there") > 0, "it says who it is");
                tells.send(()).expect("the test goes on");
                if may.recv().is_err() {
                    return;
                }
                // it is who it says, and the server is ready
                client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").expect("it is there");
                all.push(client);
            }
        });
        (port, comes, lets_in)
    }

    pub(crate) fn link(port: u16) -> Link {
        let config: Config = format!("host=127.0.0.1 port={port} user=u").parse().expect("it can be read");
        let connect_fn: ConnectFn = Arc::new(|hosts: Hosts, _| {
            Box::pin(async move {
                let (client, connection) =
                    hosts[0].connect(NoTls).await.map_err(|e| Failed::Not(error_text(&e)))?;
                let driver: Driver = Box::pin(async move { drop(connection.await) });
                let cancel: Cancel = Box::pin(std::future::ready(()));
                Ok((client, driver, cancel))
            })
        });
        // it begins without a statement
        Link::new([config].into(), connect_fn, None, Statements::Whole)
    }

    pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn a_connection_that_is_being_made_goes_on_when_a_call_has_no_time_left() {
        let (port, comes, lets_in) = silent_server();
        let mut link = link(port);
        block_on(async {
            for _ in 0..3 {
                let failed = link.query_for("select 1", &[], Duration::from_millis(20)).await;
                assert!(matches!(failed, Err(Failed::Not(_))), "{failed:?}");
            }
            lets_in.send(()).expect("it waits");
            tokio::time::timeout(LONG, link.connect()).await.expect("in time").expect("it is let in");
        });
        assert_eq!(comes.try_iter().count(), 1, "one connection was made");
    }

    #[test]
    fn a_connection_on_which_a_statement_can_not_be_prepared_is_given_up() {
        let (port, _comes, lets_in) = silent_server();
        let mut link = link(port);
        lets_in.send(()).expect("it waits");
        block_on(async {
            link.connect().await.expect("it is let in");
            link.statements = Statements::Prepared;
            assert!(link.is_up());
            let failed = link.call("select 1").await.map(drop);
            assert!(matches!(failed, Err(Failed::Not(_))), "{failed:?}");
            assert!(!link.is_up(), "it leads nowhere");
        });
    }
}
