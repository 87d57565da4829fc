//! A real kube-apiserver with its etcd, started by the tests.

use kube::{Client, Config};
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The token of a cluster admin.
pub(crate) const TOKEN: &str = "tests";

/// A real API server. It ends when this is dropped, or with the process.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    bin: PathBuf,
    ports: [u16; 3],
    etcd: Child,
    api: Child,
}

/// Where `kube/server/build` puts kube-apiserver and etcd.
fn binaries() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = || var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    let version = include_str!("../../../server/version").trim();
    let dir =
        var("REQUEUE_KUBE_SERVER").or_else(|| Some(cache()?.join(format!("requeue/kube-{version}"))))?;
    ["kube-apiserver", "etcd"].iter().all(|name| dir.join(name).is_file()).then_some(dir)
}

impl Server {
    /// `None`, after printing a line that says so, if the programs are not installed.
    pub(crate) async fn start() -> Option<Self> {
        let Some(bin) = binaries() else {
            eprintln!("SKIPPED: there is no kube-apiserver here; kube/server/build makes one, with Go");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokens.csv"), format!("{TOKEN},admin,admin,system:masters\n"))
            .unwrap();
        let made = Command::new("openssl")
            .args(["genrsa", "-out", "sa.key", "2048"])
            .current_dir(&dir)
            .stderr(Stdio::null())
            .status()
            .expect("openssl");
        assert!(made.success());
        let ports = free_ports();
        let etcd = start_etcd(&bin, dir.path(), ports);
        let api = start_api(&bin, dir.path(), ports);
        let server = Self { dir, bin, ports, etcd, api };
        server.ready().await;
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[0])
    }

    pub(crate) fn client(&self) -> Client {
        Client::try_from(self.config()).unwrap()
    }

    pub(crate) fn config(&self) -> Config {
        config(&self.url())
    }

    /// Kills the API server at once. Its state stays in etcd.
    pub(crate) fn kill(&mut self) {
        end(&mut self.api);
    }

    /// Starts it again.
    pub(crate) async fn restart(&mut self) {
        self.api = start_api(&self.bin, self.dir.path(), self.ports);
        self.ready().await;
    }

    async fn ready(&self) {
        let end = Instant::now() + Duration::from_secs(120);
        let client = self.client();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if client.request_text(request).await.is_ok_and(|text| text == "ok") {
                return;
            }
            let log = || std::fs::read_to_string(self.dir.path().join("api.log")).unwrap_or_default();
            assert!(Instant::now() < end, "the API server is not ready:\n{}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// For the server at this address.
pub(crate) fn config(url: &str) -> Config {
    let mut config = Config::new(url.parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(TOKEN.to_string().into());
    config
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in [&mut self.api, &mut self.etcd] {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// A command whose program ends when this process does, however it ends: a shell kills it at the end of its
/// standard input.
fn ends_with_us(program: &Path) -> Command {
    let script = r#""$@" </dev/null & program=$!; read -r _; kill -9 $program; wait $program"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(program).stdin(Stdio::piped());
    command
}

fn start_etcd(bin: &Path, dir: &Path, [_, client, peer]: [u16; 3]) -> Child {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let log = File::create(dir.join("etcd.log")).unwrap();
    ends_with_us(&bin.join("etcd"))
        .args(["--data-dir", "etcd", "--unsafe-no-fsync"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .current_dir(dir)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn start_api(bin: &Path, dir: &Path, [port, etcd, _]: [u16; 3]) -> Child {
    let mut log = File::options().create(true).append(true).open(dir.join("api.log")).unwrap();
    writeln!(log, "--- start").unwrap();
    ends_with_us(&bin.join("kube-apiserver"))
        .args(["--etcd-servers", &format!("http://127.0.0.1:{etcd}")])
        .args(["--service-account-issuer", "https://kubernetes.default"])
        .args(["--service-account-key-file", "sa.key", "--service-account-signing-key-file", "sa.key"])
        .args(["--token-auth-file", "tokens.csv", "--authorization-mode", "RBAC"])
        .args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string(), "--cert-dir", "certs"])
        .args(["--service-cluster-ip-range", "10.96.0.0/16", "--disable-admission-plugins", "ServiceAccount"])
        .current_dir(dir)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Three unused ports.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
