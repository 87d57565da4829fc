//! A PostgreSQL server for tests: a separate cluster in a temporary folder, which is removed when the process
//! ends.
//!
//! It uses the standard library only, so that tests of other crates can include the file.

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

/// Folder of PostgreSQL's programs: $REQUEUE_POSTGRES, Debian's folder, or one in the search path.
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

/// Starts the server as this process's user, or as nobody if that user is root, because PostgreSQL refuses to
/// be run by root.
const START: &str = r#"
set -u
folder=$1 bin=$2 configuration=$3 with=$5
export PGPORT=$4
as=
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
fi
case $with in
disk=*)
    if ! mount -t tmpfs -o "size=${with#disk=}" tmpfs "$folder"; then echo "cannot mount"; exit 1; fi
    ;;
esac
[ -z "$as" ] || chown nobody:nogroup "$folder"
export LC_ALL=C
# what the server's processes take the time from
clock=
case $with in
clock)
    printf '%s' "$6" | cc -shared -fPIC -O1 -o "$folder/clock.so" -x c - || exit 1
    head -c 8 /dev/zero >"$folder/clock"
    clock="env LD_PRELOAD=$folder/clock.so CLOCK=$folder/clock"
    ;;
esac
# of two servers one is in the folder s0, the other in s1, and the first is the one whose socket the folder links to
now=0
sockets() { if [ "$with" = replica ]; then echo "$folder/s$1"; else echo "$folder"; fi; }
configure() {
    [ "$with" != replica ] || $as mkdir -p "$(sockets $1)"
    cat >>"$folder/data$1/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$(sockets $1)'
max_connections = 200
$configuration
END
}
starts() {
    $as $clock "$bin/postgres" -D "$folder/data$1" >>"$folder.log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 600); do
        if $as "$bin/pg_isready" -q -h "$(sockets $1)"; then return; fi
        if ! kill -0 $server 2>/dev/null; then tail -n 5 "$folder.log"; exit 1; fi
        sleep 0.1
    done
}
# the first server process and all others are gone then, at once and without a word to their clients
dies() {
    kill -QUIT $1
    wait $1
    while $as "$bin/pg_ctl" status -D "$folder/data$now" >/dev/null; do sleep 0.1; done
}
# what is committed is on both from here on
replicates() {
    ln -sfn "$folder/s$now/.s.PGSQL.$PGPORT" "$folder/.s.PGSQL.$PGPORT"
    rm -rf "$folder/data$1"
    first=$server
    if ! $as "$bin/pg_basebackup" -h "$folder" -U postgres -D "$folder/data$1" -R -c fast --no-sync >>"$folder.log" 2>&1; then
        tail -n 5 "$folder.log"
        exit 1
    fi
    configure $1
    starts $1
    replica=$server server=$first
    until [ "$($as "$bin/psql" -X -A -t -U postgres -h "$folder" -c "select sync_state from pg_stat_replication")" = sync ]; do
        sleep 0.1
    done
}
if ! $as "$bin/initdb" -D "$folder/data0" -U postgres -A trust --no-sync --wal-segsize=4 >"$folder.log" 2>&1; then
    tail -n 5 "$folder.log"
    exit 1
fi
if [ "$with" = replica ]; then
    configuration="$configuration
cluster_name = 'replica'
synchronous_standby_names = 'replica'"
fi
configure 0
starts 0
[ "$with" != replica ] || replicates 1
echo ready
# until whoever started it is gone
while read -r order; do
    case $order in
    crash)
        dies $server
        starts $now
        ;;
    fail-over)
        dies $server
        now=$((1 - now)) server=$replica
        $as "$bin/pg_ctl" promote -w -D "$folder/data$now" >>"$folder.log" 2>&1
        replicates $((1 - now))
        ;;
    revive)
        # a server that could not write its log has ended
        while ! $as "$bin/psql" -X -q -U postgres -h "$folder" -c "create temp table t()" >>"$folder.log" 2>&1; do
            if ! kill -0 $server 2>/dev/null; then starts $now; fi
            sleep 0.1
        done
        ;;
    esac
    echo ready
done
kill -INT $server ${replica-}
wait
case $with in disk=*) umount "$folder" ;; esac
rm -rf "$folder" "$folder.log"
"#;

/// Additional parts of a server.
#[derive(Debug, Clone, Copy)]
pub enum With {
    /// Nothing.
    Nothing,
    /// A second server that has everything that was committed, for [`Cluster::fail_over`].
    Replica,
    /// A separate disk of this many megabytes. It needs root.
    Disk(u32),
    /// A separate clock, for [`Cluster::set_clock`]. It needs Linux and a C compiler, `cc`.
    Clock,
}

/// A library from which the server's processes take the time of day: this machine's time, plus the seconds in
/// a file that they share. (With libfaketime, which opens its file and allocates at each call, a server hung,
/// because it reads the time in signal handlers too.)
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void begins(void) {
    int file = open(getenv("CLOCK"), O_RDONLY);
    void *shared = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) abort();
    ahead = shared;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && ahead) now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (also) *also = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The line with the result, or all output if there is no such line.
fn says(said: &mut impl BufRead) -> String {
    let mut all = String::new();
    while said.read_line(&mut all).expect("it says something") > 0 {
        if let Some(last @ ("ready" | "cannot mount")) = all.lines().last() {
            return last.into();
        }
    }
    all
}

impl Cluster {
    /// Starts a server with these lines in its configuration (for a port of 127.0.0.1: `listen_addresses` and
    /// `port`). `None`, with a message on standard error, if PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start, or if it is not installed and `REQUEUE_NEEDS_POSTGRES` is set.
    pub fn start(configuration: &str) -> Option<Self> {
        Self::start_with(configuration, With::Nothing)
    }

    /// Starts a server with additional parts. `None` if one of them is not available.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start), and with [`With::Clock`] if there is no `cc` and `REQUEUE_NEEDS_POSTGRES` is set.
    pub fn start_with(configuration: &str, with: With) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(bin) = programs() else {
            assert!(std::env::var_os("REQUEUE_NEEDS_POSTGRES").is_none(), "PostgreSQL is not installed");
            eprintln!("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)");
            return None;
        };
        let with = match with {
            With::Nothing => String::new(),
            With::Replica => "replica".into(),
            With::Disk(megabytes) => format!("disk={megabytes}m"),
            With::Clock => "clock".into(),
        };
        if with == "clock" && Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(std::env::var_os("REQUEUE_NEEDS_POSTGRES").is_none(), "there is no cc");
            eprintln!(
                "SKIPPED: there is no C compiler, which a server's own clock needs (Debian: apt-get install gcc)"
            );
            return None;
        }
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
            .args([&with, CLOCK])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let guard = child.stdin.take().expect("it is piped");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        let first = says(&mut said);
        if first == "cannot mount" {
            eprintln!("SKIPPED: a server's own disk cannot be mounted here (it needs root)");
            child.wait().expect("it ends");
            return None;
        }
        assert_eq!(first, "ready", "PostgreSQL does not start");
        Some(Self { folder, bin, port, guard: Mutex::new((guard, said)), _child: Mutex::new(child) })
    }

    /// The server stops at once, as in a crash, and starts again.
    ///
    /// # Panics
    ///
    /// If it cannot be stopped.
    pub fn crash(&self) {
        self.order("crash");
    }

    /// Stops the server at once. Its replica takes its place, and gets a replica itself.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn fail_over(&self) {
        self.order("fail-over");
    }

    /// Waits until the server writes, and starts it if it has ended.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn revive(&self) {
        self.order("revive");
    }

    /// The server's clock is so many seconds ahead of this machine's from here on, for all its processes at once. It has to have
    /// been started [`With::Clock`].
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn set_clock(&self, ahead: i64) {
        // in place: the processes share the file's memory
        let file = std::fs::OpenOptions::new().write(true).open(self.folder.join("clock"));
        file.and_then(|mut file| file.write_all(&ahead.to_ne_bytes()))
            .expect("the server has a clock of its own");
    }

    fn order(&self, order: &str) {
        let mut guard = self.guard.lock().expect("no panic");
        writeln!(guard.0, "{order}").expect("it reads");
        assert_eq!(says(&mut guard.1), "ready", "PostgreSQL does not {order}");
    }

    /// The server that all tests of this process share.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("")).as_ref()
    }

    /// Connection string of a new database of the server.
    pub fn database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Relaxed));
        self.sql("postgres", &format!("create database {name}"));
        self.url(&name)
    }

    /// Connection string of a database of the server.
    pub fn url(&self, database: &str) -> String {
        format!("host={} port={} user=postgres dbname={database}", self.folder.display(), self.port)
    }

    /// One of PostgreSQL's programs, set up for this database.
    pub fn program(&self, name: &str, database: &str) -> Command {
        let mut program = Command::new(self.bin.join(name));
        program.args(["-U", "postgres", "-d", database, "-h"]).arg(&self.folder);
        program.args(["-p", &self.port.to_string()]);
        program
    }

    /// Output of psql for this statement, without headers.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self
            .program("psql", database)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql");
        psql.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
        let said = psql.wait_with_output().expect("it ends");
        assert!(said.status.success(), "{sql}");
        String::from_utf8_lossy(&said.stdout).trim_end().to_owned()
    }

    /// A free port of 127.0.0.1, for `start`.
    pub fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("it has one").port()
    }

    /// The folder with its files and its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
