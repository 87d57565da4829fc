//! A PostgreSQL server for tests: a cluster of its own in a temporary folder, which goes when the process does.
//!
//! It uses the standard library alone, so that tests of other crates can include the file.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// A server. It listens on a socket in its folder, and on a port of 127.0.0.1 where that is asked for.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    bin: PathBuf,
    port: u16,
    /// Its end ends the server and removes the folder: also where this process is killed. A line restarts the server.
    guard: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    _child: Mutex<Child>,
}

/// Where PostgreSQL's programs are: in $REQUEUE_POSTGRES, where Debian has them, or in the path.
fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("REQUEUE_POSTGRES").map(PathBuf::from).into_iter().collect();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = debian
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            Some((number, version.path().join("bin")))
        })
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().rev().map(|(_, folder)| folder));
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// Starts as this process's user and, as PostgreSQL refuses to be run by root, as nobody where that is root.
const START: &str = r#"
set -u
folder=$1 bin=$2
export PGPORT=$4
as=
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
    chown nobody:nogroup "$folder"
fi
export LC_ALL=C
if ! $as "$bin/initdb" -D "$folder/data" -U postgres -A trust --no-sync >"$folder.log" 2>&1; then
    tail -n 5 "$folder.log"
    exit 1
fi
cat >>"$folder/data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$folder'
max_connections = 200
$3
END
starts() {
    $as "$bin/postgres" -D "$folder/data" >>"$folder.log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 600); do
        if $as "$bin/pg_isready" -q -h "$folder"; then echo ready; return; fi
        if ! kill -0 $server 2>/dev/null; then tail -n 5 "$folder.log"; exit 1; fi
        sleep 0.1
    done
}
starts
# until whoever started it is gone
while read -r _; do
    # the first server process and all others are gone then, at once and without a word to their clients
    kill -QUIT $server
    wait $server
    while $as "$bin/pg_ctl" status -D "$folder/data" >/dev/null; do sleep 0.1; done
    starts
done
kill -INT $server
wait $server
rm -rf "$folder" "$folder.log"
"#;

fn is_ready(said: &mut impl BufRead) {
    let mut line = String::new();
    while said.read_line(&mut line).expect("it says something") > 0 && !line.ends_with("ready\n") {}
    assert!(line.ends_with("ready\n"), "PostgreSQL does not start: {line}");
}

impl Cluster {
    /// Starts a server with these lines in its configuration (for a port of 127.0.0.1: `listen_addresses` and `port`). `None`,
    /// said on standard error, where PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start, or if it is not and `REQUEUE_NEEDS_POSTGRES` is set.
    pub fn start(configuration: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(bin) = programs() else {
            assert!(std::env::var_os("REQUEUE_NEEDS_POSTGRES").is_none(), "PostgreSQL is not installed");
            eprintln!("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)");
            return None;
        };
        let port =
            configuration.lines().find_map(|line| line.strip_prefix("port = ")?.parse().ok()).unwrap_or(5432);
        // short: the path of a socket has 107 bytes at most
        let name = format!("requeue-pg-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut child = Command::new("sh")
            .args(["-c", START, "sh"])
            .args([&folder, &bin])
            .arg(configuration)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let guard = child.stdin.take().expect("it is piped");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        is_ready(&mut said);
        Some(Self { folder, bin, port, guard: Mutex::new((guard, said)), _child: Mutex::new(child) })
    }

    /// The server stops at once, as in a crash, and starts again.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn crash(&self) {
        let mut guard = self.guard.lock().expect("no panic");
        guard.0.write_all(b"crash\n").expect("it reads");
        is_ready(&mut guard.1);
    }

    /// The server that all tests of this process share.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("")).as_ref()
    }

    /// How to connect to a new database of it.
    pub fn database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Relaxed));
        self.sql("postgres", &format!("create database {name}"));
        self.url(&name)
    }

    /// How to connect to a database of it.
    pub fn url(&self, database: &str) -> String {
        format!("host={} port={} user=postgres dbname={database}", self.folder.display(), self.port)
    }

    /// What psql prints for this, without headers.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"])
            .arg(&self.folder)
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql");
        psql.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
        let said = psql.wait_with_output().expect("it ends");
        assert!(said.status.success(), "{sql}");
        String::from_utf8_lossy(&said.stdout).trim_end().to_owned()
    }

    /// A port of 127.0.0.1 that nobody has, for `start`.
    pub fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("it has one").port()
    }

    /// Where it has its files and its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
