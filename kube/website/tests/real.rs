//! The operator on a real API server, with only the rights of its manifest.

#[allow(dead_code, reason = "the scenarios of requeue-kube use more of it")]
#[path = "../../requeue-kube/tests/real/server.rs"]
mod server;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, ResourceExt};
use requeue_kube::Metrics;
use requeue_kube::prometheus_client::registry::Registry;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use website::crd::{Website, WebsiteSpec};

const NAMESPACE: &str = "website-system";

/// Applies a manifest like `kubectl apply -f` and the kustomization: namespaced objects are in the
/// kustomization's namespace.
async fn apply(client: &Client, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name);
    let objects: Vec<DynamicObject> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    for object in objects {
        let TypeMeta { kind, .. } = object.types.as_ref().unwrap();
        if kind == "ServiceAccount" {
            continue;
        }
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap());
        let api = match kind.as_str() {
            "Role" | "RoleBinding" => {
                Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACE, &resource)
            }
            _ => Api::all_with(client.clone(), &resource),
        };
        let how = PatchParams::apply("test").force();
        api.patch(&object.name_any(), &how, &Patch::Apply(&object)).await.unwrap();
    }
}

/// Waits until `holds` is true, at most half a minute.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}: it does not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_rights_of_the_manifest_suffice() {
    let Some(server) = server::Server::start().await else { return };
    let admin = server.client();
    apply(&admin, "namespace.yaml").await;
    apply(&admin, "crd.yaml").await;
    apply(&admin, "rbac.yaml").await;
    let mut config = server.config();
    config.default_namespace = NAMESPACE.to_owned();
    config.auth_info.impersonate = Some("system:serviceaccount:website-system:website".to_owned());
    let operator = Client::try_from(config).unwrap();
    let secrets = Api::<k8s_openapi::api::core::v1::Secret>::all(operator.clone());
    assert!(
        secrets.list(&kube::api::ListParams::default()).await.is_err(),
        "the operator has the rights of an admin"
    );

    let sites = Api::<Website>::default_namespaced(admin.clone());
    until("the kind is served", async || sites.list(&kube::api::ListParams::default()).await.is_ok()).await;
    let metrics = Metrics::register(&mut Registry::default());
    let elector = website::elect(&operator, &metrics, "pod-a").unwrap();
    let running = website::start(operator, &metrics, &elector).unwrap();
    until("it leads and has all lists", async || running.health().synced && running.is_leader()).await;

    let site = Website::new("a", WebsiteSpec { html: "one".to_owned(), port: 8080 });
    sites.create(&kube::api::PostParams::default(), &site).await.unwrap();
    let ready = async |html: &str| {
        until(html, async || {
            let status = sites.get("a").await.unwrap().status.unwrap_or_default();
            status
                .conditions
                .iter()
                .any(|it| it.status == "True" && it.observed_generation == status.observed_generation)
        })
        .await;
        let page = Api::<ConfigMap>::default_namespaced(admin.clone()).get("a").await.unwrap();
        page.data.unwrap()["index.html"] == html
    };
    assert!(ready("one").await);
    let services = Api::<Service>::default_namespaced(admin.clone());
    assert_eq!(services.get("a").await.unwrap().spec.unwrap().ports.unwrap()[0].port, 8080);
    let change = json!({"spec": {"html": "two"}});
    sites.patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    until("the change is served", async || ready("two").await).await;
    // A child that somebody takes comes back.
    services.delete("a", &DeleteParams::default()).await.unwrap();
    until("the service is back", async || services.get_opt("a").await.unwrap().is_some()).await;
    sites.delete("a", &DeleteParams::default()).await.unwrap();
    until("the website is gone", async || sites.get_opt("a").await.unwrap().is_none()).await;
    assert!(services.get_opt("a").await.unwrap().is_none());
    let report = running.drain(Duration::from_secs(5)).await;
    assert_eq!((report.cancelled, report.left), (0, 0));
    elector.release().await;
    let lease = Api::<Lease>::namespaced(admin, NAMESPACE).get("website").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.unwrap_or_default(), "", "it was renewed and given away");
}

/// The whole response to a `GET` on the program's own port.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The operator's program, and the port on which it answers.
struct Program {
    child: Child,
    port: u16,
}

impl Program {
    /// Starts it, and waits until it has its lists.
    async fn start(kubeconfig: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(env!("CARGO_BIN_EXE_website"))
            .env("KUBECONFIG", kubeconfig)
            .env("LISTEN", format!("127.0.0.1:{port}"))
            .env_remove("POD_NAME")
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("it is ready", async || {
            get(port, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
        })
        .await;
        Self { child, port }
    }

    fn shows(&self, series: &str) -> bool {
        get(self.port, "/metrics").unwrap().contains(series)
    }

    /// Sends SIGTERM. Returns the log, one line of JSON each.
    fn end(mut self) -> Vec<serde_json::Value> {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const LEADS: &str = "leader_election_master_status{name=\"website\"} 1\n";

#[tokio::test]
async fn two_programs_run_by_a_kubeconfig_and_at_sigterm_the_leader_drains_and_the_other_goes_on() {
    let Some(server) = server::Server::start().await else { return };
    let admin = server.client();
    apply(&admin, "crd.yaml").await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("config");
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": server.url(), "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"token": server::TOKEN}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let leader = Program::start(&kubeconfig).await;
    until("it leads", async || leader.shows(LEADS)).await;
    let other = Program::start(&kubeconfig).await;

    let sites = Api::<Website>::default_namespaced(admin);
    let site = Website::new("a", WebsiteSpec { html: "one".to_owned(), port: 80 });
    sites.create(&kube::api::PostParams::default(), &site).await.unwrap();
    let runs = |n: u32| {
        format!("controller_runtime_reconcile_total{{controller=\"website\",result=\"success\"}} {n}\n")
    };
    until("a run is counted", async || leader.shows(&runs(1))).await;
    assert!(other.shows(&runs(0)) && !other.shows(LEADS));
    let metrics = get(leader.port, "/metrics").unwrap();
    assert!(metrics.contains("application/openmetrics-text"));
    assert!(metrics.contains("rest_client_requests_total{code=\"200\",method=\"PATCH\""), "{metrics}");

    let log = leader.end();
    let drained = log.iter().find(|line| line["fields"]["message"] == "drained").unwrap();
    assert_eq!(drained["fields"]["done"], json!(1));
    let at = Instant::now();
    until("the other one leads", async || other.shows(LEADS)).await;
    eprintln!("the other one leads {:?} after the end of the first", at.elapsed());
    let change = json!({"spec": {"html": "two"}});
    sites.patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    until("the change is served", async || {
        let status = sites.get("a").await.unwrap().status.unwrap_or_default();
        status.observed_generation == Some(2)
    })
    .await;
    other.end();
}
