//! Compares the folder `deploy` with the operator.

mod support;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::all_ways;

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(place(name)).unwrap()
}

/// All objects of a manifest.
fn objects(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn object<T: serde::de::DeserializeOwned>(name: &str, kind: &str) -> T {
    let object = objects(name).into_iter().find(|it| it["kind"] == kind).unwrap();
    serde_json::from_value(object).unwrap()
}

/// Whether this program is installed. A test that needs it prints that it is skipped.
fn has(program: &str, argument: &str) -> bool {
    let is_here = Command::new(program).arg(argument).output().is_ok();
    if !is_here {
        eprintln!("skipped: {program} is not here");
    }
    is_here
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_definition_of_the_kind_is_that_of_the_program() {
    let made = website::crd_yaml().unwrap();
    if std::env::var_os("WEBSITE_BLESS").is_some() {
        std::fs::write(place("deploy/crd.yaml"), &made).unwrap();
    }
    assert!(
        read("deploy/crd.yaml") == made,
        "make it anew: cargo run -p website crd >website/deploy/crd.yaml"
    );
    assert_eq!(run(Command::new(env!("CARGO_BIN_EXE_website")).arg("crd")), made);
}

#[test]
fn arguments_that_it_does_not_know_are_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_website")).arg("crds").output().unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("does not know crds") && told.contains("website crd"), "{told}");
}

/// Resource and verbs, resource and verbs.
type Rights = BTreeMap<(String, String), BTreeSet<String>>;

#[tokio::test(start_paused = true)]
async fn the_roles_allow_what_the_operator_does_and_nothing_else() {
    let world = all_ways().await;
    let mut used = Rights::new();
    for asked in world.asked.lock().unwrap().iter() {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let mut parts = path.trim_start_matches('/').split('/');
        let group = if parts.next() == Some("api") { "" } else { parts.next().unwrap() };
        let mut parts: Vec<_> = parts.skip(1).collect();
        if parts.len() > 2 && parts[0] == "namespaces" {
            parts.drain(..2);
        }
        let resource = match parts[..] {
            [resource] | [resource, _] => resource.to_owned(),
            [resource, _, of] => format!("{resource}/{of}"),
            _ => panic!("{path}"),
        };
        let verbs: &[&str] = match (asked.method.as_str(), parts.len()) {
            ("GET", 1) if query.contains("watch=true") => &["watch"],
            ("GET", 1) => &["list"],
            ("GET", _) => &["get"],
            // The API server asks for both.
            ("PATCH", _) if asked.body == "application/apply-patch+yaml" => &["create", "patch"],
            ("PATCH", _) => &["patch"],
            ("DELETE", 2) => &["delete"],
            ("POST", 1) => &["create"],
            ("PUT", 2) => &["update"],
            (method, _) => panic!("{method} {path}"),
        };
        let used = used.entry((group.to_owned(), resource)).or_default();
        used.extend(verbs.iter().map(ToString::to_string));
    }
    let of_cluster: ClusterRole = object("deploy/rbac.yaml", "ClusterRole");
    let of_namespace: Role = object("deploy/rbac.yaml", "Role");
    let is_of_leases =
        |rule: &PolicyRule| rule.resources.iter().flatten().all(|resource| resource == "leases");
    assert!(of_namespace.rules.iter().flatten().all(is_of_leases), "the rest is of all namespaces");
    let mut allowed = Rights::new();
    for rule in of_cluster.rules.into_iter().chain(of_namespace.rules).flatten() {
        for group in rule.api_groups.unwrap() {
            for resource in rule.resources.iter().flatten() {
                let allowed = allowed.entry((group.clone(), resource.clone())).or_default();
                allowed.extend(rule.verbs.iter().cloned());
            }
        }
    }
    assert_eq!(allowed, used);
}

#[test]
fn the_deployment_gives_the_operator_longer_than_it_takes_and_no_rights_of_the_machine() {
    let deployment: Deployment = object("deploy/deployment.yaml", "Deployment");
    let spec = deployment.spec.unwrap();
    // One runs and one stands by, and a new one is there before an old one ends.
    assert_eq!(spec.replicas, Some(2));
    assert_eq!(spec.strategy.unwrap().type_.as_deref(), Some("RollingUpdate"));
    let pod = spec.template.spec.unwrap();
    let grace = u64::try_from(pod.termination_grace_period_seconds.unwrap()).unwrap();
    assert!(grace > (website::GRACE + website::RELEASE).as_secs());
    assert_eq!(pod.security_context.unwrap().run_as_non_root, Some(true));
    let container = &pod.containers[0];
    let security = container.security_context.as_ref().unwrap();
    assert_eq!(security.allow_privilege_escalation, Some(false));
    assert_eq!(security.read_only_root_filesystem, Some(true));
    assert!(container.liveness_probe.is_some() && container.readiness_probe.is_some());
    assert!(container.resources.as_ref().unwrap().limits.as_ref().unwrap().contains_key("memory"));
    let binding: ClusterRoleBinding = object("deploy/rbac.yaml", "ClusterRoleBinding");
    let account = pod.service_account_name.unwrap();
    assert_eq!(binding.subjects.unwrap()[0].name, account);
    assert_eq!(binding.role_ref.name, "website");
    let binding: RoleBinding = object("deploy/rbac.yaml", "RoleBinding");
    assert_eq!(binding.subjects.unwrap()[0].name, account);
    assert_eq!((binding.role_ref.kind, binding.role_ref.name), ("Role".to_owned(), "website".to_owned()));
    // Under its own name each replica stands for the lease.
    let pod_name = container.env.iter().flatten().find(|it| it.name == "POD_NAME").unwrap();
    let field = pod_name.value_from.as_ref().unwrap().field_ref.as_ref().unwrap();
    assert_eq!(field.field_path, "metadata.name");
}

#[test]
fn kustomize_takes_all_manifests() {
    let listed = &objects("deploy/kustomization.yaml")[0]["resources"];
    let mut listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
    listed.push("kustomization.yaml".to_owned());
    let files = std::fs::read_dir(place("deploy")).unwrap();
    let mut files: Vec<_> = files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|name| name.ends_with(".yaml"));
    listed.sort();
    files.sort();
    assert_eq!(listed, files);
    let objects: usize = listed.iter().map(|name| objects(&format!("deploy/{name}")).len()).sum();
    if has("kubectl", "help") {
        let all = run(Command::new("kubectl").arg("kustomize").arg(place("deploy")));
        // The kustomization itself is no object.
        assert_eq!(all.matches("\nkind: ").count() + usize::from(all.starts_with("kind: ")), objects - 1);
    }
}

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    let rules = &objects("deploy/alerts.yaml")[0];
    assert_eq!(rules["kind"], "PrometheusRule");
    if !has("promtool", "--version") {
        return;
    }
    // The Prometheus operator hands the spec on as it is.
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rules.yaml"), serde_saphyr::to_string(&rules["spec"]).unwrap()).unwrap();
    std::fs::write(dir.path().join("alerts.test.yaml"), read("tests/alerts.test.yaml")).unwrap();
    run(Command::new("promtool").args(["check", "rules", "rules.yaml"]).current_dir(&dir));
    run(Command::new("promtool").args(["test", "rules", "alerts.test.yaml"]).current_dir(&dir));
}
