//! [`Postgres`]: a server as used by one process, with the engine's thread and the connections that its
//! queues share.

use crate::add_batcher::AddBatcher;
use crate::builder::QueueBuilder;
use crate::client::Client;
use crate::conn_string::ConnString;
use crate::heartbeat::Heartbeat;
use crate::hub::{Hub, call};
use crate::lanes::Lanes;
use crate::link::{
    ANSWERS, Cancel, ConnectFn, Driver, Failed, Heard, Hearing, Hosts, Link, SILENT, Statements, error_text,
};
use crate::schema::{known, make};
use crate::wakeups::Wakeups;
use requeue::BoxError;
use requeue_engine::{EngineError, Key, Op};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Config, Connection, Socket};

/// Time limit for sending ends of runs and put-back keys after the last handle is dropped.
const CLOSES: Duration = Duration::from_secs(5);
/// Part of a connection's time limit that is kept for reporting which host was silent.
const TELLS: Duration = Duration::from_millis(200);

/// A PostgreSQL server, as used by this process.
///
/// A clone is another handle. When the last one is dropped, including those of its queues, pending ends of
/// runs are sent, claimed keys that no worker has begun are put back, and the leases are given up. That takes
/// at most 5 seconds.
///
/// ```no_run
/// # use requeue_postgres::Postgres;
/// let pg = Postgres::connect("host=db dbname=shop user=worker").wait()?;
/// let (orders, mails) = (pg.queue::<u64>("orders").open().wait()?, pg.queue::<String>("mails").open().wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Postgres {
    hub: Arc<Hub>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hub.hosts.iter().flat_map(Config::get_hosts).collect();
        f.debug_struct("Postgres").field("hosts", &hosts).finish_non_exhaustive()
    }
}

/// Whether a part of the password may appear as the host: if an `@` in the password of a URL is not
/// percent-encoded, the rest of the password does.
fn is_secret(host: &Config) -> bool {
    let has_at = |text: &str| text.contains('@');
    host.get_dbname().is_some_and(has_at)
        || host.get_hosts().iter().any(|host| match host {
            Host::Tcp(name) => has_at(name),
            #[cfg(unix)]
            Host::Unix(folder) => has_at(&folder.to_string_lossy()),
        })
}

/// The host and the port of a connection, or the folder of its socket; `None` if that is unknown.
fn place(host: &Config) -> Option<String> {
    if host.get_hosts().len() > 1 || host.get_hostaddrs().len() > 1 {
        return None;
    }
    let name = match (host.get_hosts().first(), host.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        #[cfg(unix)]
        (Some(Host::Unix(folder)), _) => return Some(folder.display().to_string()),
        (None, Some(address)) => address.to_string(),
        (None, None) => return None,
    };
    let name = if name.contains(':') { format!("[{name}]") } else { name };
    Some(format!("{name}:{}", host.get_ports().first().unwrap_or(&5432)))
}

/// The error for a host without a connection.
fn unreachable(host: &Config, why: &str) -> String {
    let why = why.strip_prefix("error connecting to server: ").unwrap_or(why);
    let hint = if why.ends_with("password missing") {
        "; write postgres://USER:PASSWORD@HOST/DATABASE (percent-encoded), or set PGPASSWORD: ~/.pgpass is not read"
    } else {
        ""
    };
    match place(host) {
        _ if is_secret(host) => {
            format!("{why}; there is an @ in the host or the database: in a password write it as %40")
        }
        Some(place) => format!("{place}: {why}{hint}"),
        None => format!("{why}{hint}"),
    }
}

/// Connects to the first host that answers. Each has its share of the time: a silent one leaves some to the
/// others. If none answers, the error names the reason for each.
async fn reach<T>(
    hosts: &[Config],
    tls: &T,
) -> Result<(tokio_postgres::Client, Connection<Socket, T::Stream>), Failed>
where
    T: MakeTlsConnect<Socket> + Clone,
{
    let share = (ANSWERS - TELLS) / u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let mut order: Vec<_> = hosts.iter().collect();
    if hosts.iter().any(|host| host.get_load_balance_hosts() == LoadBalanceHosts::Random) {
        order.sort_by_cached_key(|_| RandomState::new().build_hasher().finish());
    }
    let mut failed = Vec::new();
    for host in order {
        let why = match tokio::time::timeout(share, host.connect(tls.clone())).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(e)) => error_text(&e).to_string(),
            Err(_) => SILENT.to_owned(),
        };
        failed.push(unreachable(host, &why));
    }
    Err(Failed::Not(failed.join("; ").into()))
}

/// Makes connections with this kind of TLS.
fn connect_by<T>(tls: T) -> ConnectFn
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    Arc::new(move |hosts: Hosts, heard: Option<Heard>| {
        let tls = tls.clone();
        Box::pin(async move {
            let (client, mut connection) = reach(&hosts, &tls).await?;
            let driver: Driver = Box::pin(async move {
                while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    if let (AsyncMessage::Notification(said), Some(heard)) = (message, &heard) {
                        heard(said.payload());
                    }
                }
            });
            let token = client.cancel_token();
            let cancel: Cancel = Box::pin(async move { drop(token.cancel_query(tls).await) });
            Ok((client, driver, cancel))
        })
    })
}

/// The ways to reach a server.
struct Ways {
    hosts: Hosts,
    statements: Statements,
    hears: Hears,
}

/// The way of notifications.
enum Hears {
    /// On a connection made in this way.
    At(Hosts),
    Nothing,
}

impl Ways {
    /// Parses a connection string.
    fn of(mut conn_string: ConnString) -> Result<Self, BoxError> {
        let mode = conn_string.take("pool_mode");
        let direct = conn_string.take_direct()?.map(read).transpose()?;
        let hosts = read(conn_string)?;
        let shares = match mode.as_deref() {
            None => direct.is_some(),
            Some("session") => false,
            Some("transaction") => true,
            Some(_) => return Err("pool_mode is session or transaction".into()),
        };
        Ok(match (shares, direct) {
            (false, direct) => {
                let hears = Hears::At(direct.unwrap_or_else(|| hosts.clone()));
                Self { hosts, statements: Statements::Prepared, hears }
            }
            (true, direct) => {
                let hears = direct.map_or(Hears::Nothing, Hears::At);
                Self { hosts, statements: Statements::Whole, hears }
            }
        })
    }
}

/// Reads the hosts of a connection string.
fn read(conn_string: ConnString) -> Result<Hosts, BoxError> {
    let all = parse(conn_string.clone())?;
    let (hosts, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let count = hosts.len().max(addresses.len());
    let fits = |list: usize| list == 0 || list == count;
    // tokio-postgres refuses lists that do not fit, with a reason
    if count < 2 || !fits(hosts.len()) || !fits(addresses.len()) || !(fits(ports.len()) || ports.len() == 1) {
        return Ok([all].into());
    }
    let none = parse(conn_string.without_hosts())?;
    let one = |nth: usize| {
        let mut one = none.clone();
        match hosts.get(nth) {
            Some(Host::Tcp(host)) => one.host(host),
            #[cfg(unix)]
            Some(Host::Unix(folder)) => one.host_path(folder),
            None => &mut one,
        };
        if let Some(address) = addresses.get(nth) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(nth).or(ports.first()) {
            one.port(*port);
        }
        if one.get_target_session_attrs() == TargetSessionAttrs::Any {
            // one that has become a standby would refuse all
            one.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        one
    };
    Ok((0..count).map(one).collect())
}

fn parse(conn_string: ConnString) -> Result<Config, BoxError> {
    let keeps_idle = conn_string.says("keepalives_idle");
    match conn_string.join().parse::<Config>() {
        Ok(mut config) => {
            if config.get_application_name().is_none() {
                config.application_name("requeue");
            }
            with_password(&mut config, std::env::var_os("PGPASSWORD"));
            if !keeps_idle {
                config.keepalives_idle(Duration::from_secs(4));
            }
            if config.get_keepalives_interval().is_none() {
                config.keepalives_interval(Duration::from_secs(2));
            }
            if config.get_keepalives_retries().is_none() {
                config.keepalives_retries(2);
            }
            if config.get_tcp_user_timeout().is_none() {
                config.tcp_user_timeout(Duration::from_secs(8));
            }
            Ok(config)
        }
        // its text may have a password in it, and is not repeated
        Err(e) => Err(match std::error::Error::source(&e) {
            Some(source) => format!("{e}: {source}").into(),
            None => e.to_string().into(),
        }),
    }
}

/// Adds the environment's password if the string has none.
fn with_password(config: &mut Config, password: Option<OsString>) {
    if let (None, Some(password)) = (config.get_password(), password.filter(|it| !it.is_empty())) {
        config.password(password.as_encoded_bytes());
    }
}

impl Postgres {
    /// Connects to a server: `host=db dbname=shop user=worker`, or `postgres://worker@db/shop`. The options
    /// are those of [`Config`]. Of several hosts (`host=a,b`) it uses the first that accepts writes, unless
    /// `target_session_attrs` is `any`. Each has its share of ten seconds to answer.
    ///
    /// If the string has no password, the environment's `PGPASSWORD` is used. `~/.pgpass` is not read.
    ///
    /// A connection that is silently cut (a cable, a firewall that forgets it) is noticed within ten seconds,
    /// even if it is idle. The default for that is `keepalives_idle=4 keepalives_interval=2
    /// keepalives_retries=2 tcp_user_timeout=8`.
    ///
    /// With the feature `rustls` (on by default) it uses TLS like libpq: if the server offers it, always with
    /// `sslmode=require`, never with `sslmode=disable`. Neither of the first two verifies the server.
    /// `sslmode=verify-full` does, against the authorities that the system trusts (or `SSL_CERT_FILE`), or
    /// those of a file: `sslrootcert=/etc/ca.pem`. Without the feature there is no TLS.
    ///
    /// Behind a pooler (PgBouncer) each transaction may use another session. Declare it with
    /// `pool_mode=transaction`, the name in PgBouncer's own configuration. Then statements are not prepared,
    /// so that a look-up takes the server twice as long, and notifications can't come in: a key may wait for
    /// a second until an idle process looks. With `direct_host=db` (and `direct_port`) they come in on a
    /// connection to that host, which is otherwise made as the string says. Leases are extended there too, so
    /// that no lease is lost when a pool's connections are all busy.
    ///
    /// # Errors
    ///
    /// If the string is invalid, or the server can't be reached.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// let pg = Postgres::connect("postgres://worker@db/shop?sslmode=verify-full").wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(config: &str) -> Op<Self> {
        #[cfg(feature = "rustls")]
        {
            let mut config = ConnString::of(config);
            match crate::tls::trust(&mut config).and_then(|trust| crate::tls::connector(&trust)) {
                Ok(tls) => Self::connect_as(config, tls),
                Err(why) => Err(EngineError::NotApplied(why)).into(),
            }
        }
        #[cfg(not(feature = "rustls"))]
        Self::connect_with(config, tokio_postgres::NoTls)
    }

    /// Checks a connection string for [`connect`](Self::connect), without contacting a server.
    ///
    /// # Errors
    ///
    /// The reason why it is invalid.
    ///
    /// ```
    /// # use requeue_postgres::Postgres;
    /// assert!(Postgres::check("postgres://worker@db/shop").is_ok());
    /// assert!(Postgres::check("postgres://worker@db:port/shop").is_err());
    /// ```
    pub fn check(config: &str) -> Result<(), EngineError> {
        #[cfg_attr(not(feature = "rustls"), allow(unused_mut))]
        let mut conn_string = ConnString::of(config);
        #[cfg(feature = "rustls")]
        crate::tls::trust(&mut conn_string).map_err(EngineError::NotApplied)?;
        Ways::of(conn_string).map(drop).map_err(EngineError::NotApplied)
    }

    /// Connects with the caller's TLS: a rustls configured by the program, with client certificates for
    /// example (`tokio-postgres-rustls`), or OpenSSL (`postgres-openssl`). The string's certificate options
    /// are ignored.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let tls = tokio_postgres::NoTls;
    /// let pg = Postgres::connect_with("postgres://worker@db/shop?sslmode=require", tls).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect_with<T>(config: &str, tls: T) -> Op<Self>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self::connect_as(ConnString::of(config), tls)
    }

    fn connect_as<T>(config: ConnString, tls: T) -> Op<Self>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        match Ways::of(config) {
            Ok(ways) => Self::start(ways, connect_by(tls)),
            Err(why) => Err(EngineError::NotApplied(why)).into(),
        }
    }

    fn start(ways: Ways, connect_fn: ConnectFn) -> Op<Self> {
        let Ways { hosts, statements, hears } = ways;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(e) => return Err(EngineError::NotApplied(e.into())).into(),
        };
        let (closing, mut is_closing) = watch::channel(false);
        let (alive, mut all_ended) = mpsc::channel(1);
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("requeue-postgres".into()).spawn(move || {
            runtime.block_on(async move {
                drop(is_closing.wait_for(|closing| *closing).await);
                drop(tokio::time::timeout(CLOSES, all_ended.recv()).await);
            });
            // a look-up of names may hang in a thread of the runtime's
            runtime.shutdown_background();
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(e) => return Err(EngineError::NotApplied(e.into())).into(),
        };
        let application = hosts.first().and_then(Config::get_application_name).unwrap_or_default();
        let wakeups = Arc::new(Wakeups::new(application));
        let wakes = wakeups.clone();
        let heard: Heard = Arc::new(move |payload: &str| wakes.hear(payload));
        let (to, by) = (hosts.clone(), connect_fn.clone());
        let lanes = Arc::new(Lanes::new(move || Link::new(to.clone(), by.clone(), None, statements)));
        let listens = Arc::new(AtomicBool::new(false));
        let (is_heard, is_direct, heartbeat) = match hears {
            Hears::At(direct) => {
                let is_direct = !Arc::ptr_eq(&direct, &hosts);
                let heard = Hearing { heard, listens: listens.clone() };
                (true, is_direct, Link::new(direct, connect_fn.clone(), Some(heard), Statements::Prepared))
            }
            Hears::Nothing => (false, false, Link::new(hosts.clone(), connect_fn.clone(), None, statements)),
        };
        let heartbeat = Arc::new(Heartbeat::new(heartbeat, listens, (is_heard, is_direct), lanes.clone()));
        let hub = Hub {
            batcher: Arc::new(AddBatcher::new(wakeups.clone())),
            lanes,
            heartbeat,
            hosts,
            connect_fn,
            statements,
            runtime: handle,
            thread: Some(thread),
            closing,
            alive,
            wakeups,
        };
        let (batcher, link) = (hub.batcher.clone(), hub.link());
        hub.spawn(|closing| batcher.run(link, closing));
        hub.spawn(|closing| hub.heartbeat.clone().run(closing));
        let hub = Arc::new(hub);
        let runtime = hub.runtime.clone();
        call(&runtime, async move {
            hub.lanes.lock().await.connect().await?;
            Ok(Self { hub })
        })
    }

    /// Creates the schema `requeue`, or migrates it to this program's version from any older one. Concurrent
    /// and repeated calls are safe. Processes of the previous version can work meanwhile and afterwards:
    /// first migrate the schema, then replace them. It does not wait for runs; if a transaction has locked a
    /// table that must change it tries again for 30 seconds. The role must be allowed to create a schema, or
    /// an administrator must create an empty one for it: `create schema requeue authorization worker`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Version`] if a newer program has created it. If the role lacks permissions, the error
    /// names the grants that it needs.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.migrate().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn migrate(&self) -> Op<()> {
        let lanes = self.hub.lanes.clone();
        self.hub.call(async move {
            let mut link = lanes.lock().await;
            make(&mut link).await
        })
    }

    /// A builder to work on the queue with this name, with keys alone.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<String>("orders").open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue<K: Key>(&self, name: &str) -> QueueBuilder<K> {
        QueueBuilder::new(self.hub.clone(), name, |_: &mut (), ()| ())
    }

    /// A builder to work on the queue with this name, whose triggers may carry values. The server keeps them
    /// as JSON, and the process that runs the key merges them, the older first.
    ///
    /// `merge`, and the code that reads keys and values (`Key::from_bytes`, `Deserialize`), must be quick.
    /// They run on the engine's thread: the claims, adds and leases of all queues of this handle wait for
    /// them.
    ///
    /// If `merge` panics, the key gives up.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # use std::collections::BTreeSet;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let merge = |old: &mut BTreeSet<String>, new| old.extend(new);
    /// let q = pg.queue_with::<String, BTreeSet<String>>("users", merge).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_with<K, V>(
        &self,
        name: &str,
        merge: impl Fn(&mut V, V) + Send + Sync + 'static,
    ) -> QueueBuilder<K, V>
    where
        K: Key,
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        QueueBuilder::new(self.hub.clone(), name, merge)
    }

    /// Access to the queue with this name without working on it: add, list, cancel.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// println!("{:?}", pg.client("orders").stats().wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn client(&self, name: &str) -> Client {
        Client::new(self.hub.clone(), name)
    }

    /// Creates a queue without opening it; false if it exists.
    ///
    /// # Errors
    ///
    /// If the name is empty, has more than 200 bytes or a control character, or if the server can't be asked.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.make_queue("orders").wait()?;
    /// pg.client("orders").add_many(&["order-4711".to_owned()], None, 0).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn make_queue(&self, name: &str) -> Op<bool> {
        let (lanes, name) = (self.hub.lanes.clone(), name.to_owned());
        self.hub.call(async move {
            let mut link = lanes.lock().await;
            known(&mut link).await?;
            let made = link.query("select requeue.make_queue($1)", &[&name]).await?;
            Ok(made.first().is_some_and(|row| row.get(0)))
        })
    }

    /// The names of all queues.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// println!("{:?}", pg.queues().wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queues(&self) -> Op<Vec<String>> {
        let lanes = self.hub.lanes.clone();
        self.hub.call(async move {
            let mut link = lanes.lock().await;
            known(&mut link).await?;
            let names = link.query("select name from requeue.queue order by name", &[]).await?;
            Ok(names.iter().map(|row| row.get(0)).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_tried_by_itself_with_all_that_the_string_says_otherwise() {
        let all = |config: &str| read(ConnString::of(config)).expect("it can be read");
        let alone = |config: &str| {
            let mut alone = config.parse::<Config>().expect("it can be read");
            let seconds = Duration::from_secs;
            alone.keepalives_idle(seconds(4)).keepalives_interval(seconds(2)).keepalives_retries(2);
            alone.tcp_user_timeout(seconds(8)).clone()
        };
        let one = |config: &str| {
            let mut one = alone(config);
            one.target_session_attrs(TargetSessionAttrs::ReadWrite);
            one
        };
        let named = "application_name=requeue";
        assert_eq!(
            *all("host=a,/b port=1,2 user=u"),
            [one(&format!("user=u {named} host=a port=1")), one(&format!("user=u {named} host=/b port=2"))]
        );
        assert_eq!(
            *all("hostaddr=10.0.0.1,10.0.0.2 port=1 host='a,b'"),
            [
                one(&format!("{named} host=a hostaddr=10.0.0.1 port=1")),
                one(&format!("{named} host=b hostaddr=10.0.0.2 port=1"))
            ]
        );
        assert_eq!(
            *all("postgres://u:p@a:1,b/d?connect_timeout=3"),
            [
                one(&format!("postgres://u:p@a:1/d?connect_timeout=3&{named}")),
                one(&format!("postgres://u:p@b/d?connect_timeout=3&{named}"))
            ]
        );
        assert_eq!(*all("host=a"), [alone(&format!("{named} host=a"))]);
        // tokio-postgres names the error
        assert_eq!(all("host=a,b,c port=1,2").len(), 1);
        let said = "keepalives_idle=60 keepalives_interval=7 keepalives_retries=9 tcp_user_timeout=99";
        let said = format!("host=a {named} {said}");
        assert_eq!(*all(&said), [said.parse::<Config>().expect("it can be read")]);
    }

    #[test]
    fn a_password_that_the_string_does_not_name_is_the_environments() {
        let has = |config: &str, environment: Option<&str>| {
            let mut config: Config = config.parse().expect("it can be read");
            with_password(&mut config, environment.map(Into::into));
            config.get_password().map(<[u8]>::to_vec)
        };
        assert_eq!(has("postgres://u@db/shop", Some("of it")), Some(b"of it".to_vec()));
        assert_eq!(has("postgres://u:own@db/shop", Some("of it")), Some(b"own".to_vec()));
        assert_eq!(has("host=db", Some("")), None);
        assert_eq!(has("host=db", None), None);
    }

    #[test]
    fn an_error_of_connecting_names_the_host_and_no_part_of_a_password() {
        let told = |config: &str| unreachable(&config.parse().expect("it can be read"), "down");
        for (config, expected) in [
            ("postgres://u:secret@db/shop", "db:5432: down"),
            ("postgres://u:secret@db:6543/shop", "db:6543: down"),
            ("host=%2Ftmp port=1", "%2Ftmp:1: down"),
            ("host=/tmp/folder port=1", "/tmp/folder: down"),
            ("hostaddr=::1 port=1", "[::1]:1: down"),
            ("host=db hostaddr=::1", "db:5432: down"),
            // not percent-encoded: the rest of the password would be the host
            (
                "postgres://u:sec@ret@db/shop",
                "down; there is an @ in the host or the database: in a password write it as %40",
            ),
            (
                "postgres://u:sec@ret/x@db/shop",
                "down; there is an @ in the host or the database: in a password write it as %40",
            ),
            ("user=u", "down"),
        ] {
            assert_eq!(told(config), expected, "{config}");
        }
        let db = "host=db".parse().expect("it can be read");
        assert_eq!(unreachable(&db, "error connecting to server: refused"), "db:5432: refused");
        assert!(
            unreachable(&db, "invalid configuration: password missing")
                .contains("missing; write postgres://USER:")
        );
    }
}
