//! One table of calls, run against the fake API server and against the real one: the test fails if their
//! answers differ.
//!
//! An expected text may be a word: `$set` (any value), `$none` (no value), `$=name` (the value kept under
//! that name), `$!name` (any other value). `{name}` in a path or a body is the kept value.

#[path = "real/server.rs"]
#[allow(dead_code, reason = "the scenarios do more with the server")]
mod server;

use kube::Client;
use kube::client::Body;
use requeue_kube::fake;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";
const META: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const META_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

const SITES: &str = "/apis/table.dev/v1/namespaces/table/sites";
const MAPS: &str = "/api/v1/namespaces/table/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/table/deployments";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/table/leases";

/// A call and what is expected of its answer.
struct Call {
    what: &'static str,
    method: &'static str,
    path: String,
    content: &'static str,
    accept: &'static str,
    body: Option<Value>,
    code: u16,
    reason: Option<&'static str>,
    parts: Vec<(&'static str, Value)>,
    kept: Vec<(&'static str, &'static str)>,
    /// Makes the fake server forget its changes first; a real one does so by itself.
    forget: bool,
}

fn call(what: &'static str, method: &'static str, path: impl Into<String>, code: u16) -> Call {
    Call {
        what,
        method,
        path: path.into(),
        content: JSON,
        accept: JSON,
        body: None,
        code,
        reason: None,
        parts: Vec::new(),
        kept: Vec::new(),
        forget: false,
    }
}

impl Call {
    fn body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    fn patch(self, content: &'static str, body: Value) -> Self {
        Self { content, body: Some(body), ..self }
    }

    fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    fn reason(self, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// A part of the answer, by JSON pointer.
    fn has(mut self, pointer: &'static str, value: impl Into<Value>) -> Self {
        self.parts.push((pointer, value.into()));
        self
    }

    fn after_all_is_forgotten(self) -> Self {
        Self { forget: true, ..self }
    }

    fn keep(mut self, name: &'static str, pointer: &'static str) -> Self {
        self.kept.push((name, pointer));
        self
    }
}

const VERSION: &str = "/metadata/resourceVersion";
const GENERATION: &str = "/metadata/generation";

fn a_site(name: &str, more: &Value) -> Value {
    let mut site = json!({"apiVersion": "table.dev/v1", "kind": "Site", "metadata": {"name": name}});
    json_patch_merge(&mut site, more);
    site
}

fn a_map(name: &str, more: &Value) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    json_patch_merge(&mut map, more);
    map
}

/// Lays one JSON object over another.
fn json_patch_merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                json_patch_merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more.clone(),
    }
}

fn creation() -> Vec<Call> {
    vec![
        call("an object is made", "POST", SITES, 201)
            .body(a_site("a", &json!({"spec": {"x": 1}, "status": {"s": 1}, "metadata": {"labels": {"app": "web"}}})))
            .has("/kind", "Site")
            .has("/apiVersion", "table.dev/v1")
            .has("/metadata/uid", "$set")
            .has("/metadata/creationTimestamp", "$set")
            .has("/metadata/namespace", "table")
            .has("/spec/x", 1)
            .has("/status", "$none")
            .has(GENERATION, 1)
            .keep("a1", VERSION)
            .keep("uid", "/metadata/uid"),
        call("it is there", "GET", format!("{SITES}/a"), 200).has(VERSION, "$=a1").has("/spec/x", 1),
        call("it can't be made twice", "POST", SITES, 409)
            .body(a_site("a", &json!({})))
            .reason("AlreadyExists")
            .has("/details/name", "a")
            .has("/details/kind", "sites")
            .has("/details/group", "table.dev"),
        call("a name made by the server", "POST", SITES, 201)
            .body(json!({"apiVersion": "table.dev/v1", "kind": "Site", "metadata": {"generateName": "made-"}}))
            .has("/metadata/generateName", "made-")
            .keep("made", "/metadata/name"),
        call("it has that name", "DELETE", format!("{SITES}/{{made}}"), 200).has("/details/name", "$=made"),
        call("no name", "POST", SITES, 422)
            .body(json!({"apiVersion": "table.dev/v1", "kind": "Site", "metadata": {}}))
            .reason("Invalid"),
        call("a name that is none", "POST", SITES, 422).body(a_site("Not_A_Name", &json!({}))).reason("Invalid"),
        call("another kind than the path's", "POST", SITES, 400)
            .body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k"}}))
            .reason("BadRequest"),
        call("another namespace than the path's", "POST", MAPS, 400)
            .body(a_map("k", &json!({"metadata": {"namespace": "other"}})))
            .reason("BadRequest"),
        call("no JSON object", "POST", MAPS, 400).body(json!("text")).reason("BadRequest"),
        call("a new object can't have a version", "POST", MAPS, 500)
            .body(a_map("k", &json!({"metadata": {"resourceVersion": "5"}}))),
        call("a dry run makes nothing", "POST", format!("{MAPS}?dryRun=All"), 201).body(a_map("dry", &json!({}))),
        call("it made nothing", "GET", format!("{MAPS}/dry"), 404)
            .reason("NotFound")
            .has("/details/name", "dry")
            .has("/details/kind", "configmaps"),
        call("a kind without generations", "POST", MAPS, 201)
            .body(a_map("m", &json!({"data": {"k": "v"}})))
            .has(GENERATION, "$none")
            .keep("m1", VERSION),
        call("such an object has no status", "GET", format!("{MAPS}/m/status"), 404),
        call("metadata alone", "GET", format!("{SITES}/a"), 200)
            .accept(META)
            .has("/kind", "PartialObjectMetadata")
            .has("/apiVersion", "meta.k8s.io/v1")
            .has("/metadata/name", "a")
            .has("/spec", "$none"),
        call("a kind of Kubernetes with generations", "POST", DEPLOYMENTS, 201)
            .body(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
                "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            }}))
            .has(GENERATION, 1),
        call("its generation grows", "PATCH", format!("{DEPLOYMENTS}/d"), 200)
            .patch(STRATEGIC, json!({"spec": {"replicas": 2}}))
            .has("/spec/replicas", 2)
            .has(GENERATION, 2),
        call("a lease is made", "POST", LEASES, 201)
            .body(json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}))
            .has("/kind", "Lease")
            .has(GENERATION, "$none")
            .keep("l1", VERSION),
    ]
}

fn replacement() -> Vec<Call> {
    let replace = |more: Value| a_site("a", &more);
    vec![
        call("a replacement needs a version", "PUT", format!("{SITES}/a"), 422)
            .body(replace(json!({"spec": {"x": 2}})))
            .reason("Invalid"),
        call("one of Kubernetes' kinds needs none", "PUT", format!("{MAPS}/m"), 200)
            .body(a_map("m", &json!({"data": {"k": "w"}})))
            .has("/data/k", "w")
            .keep("m2", VERSION),
        call("what changes nothing is no new version", "PUT", format!("{MAPS}/m"), 200)
            .body(a_map("m", &json!({"data": {"k": "w"}})))
            .has(VERSION, "$=m2"),
        call("a change of the spec", "PUT", format!("{SITES}/a"), 200)
            .body(replace(json!({"metadata": {"resourceVersion": "{a1}"}, "spec": {"x": 2}, "status": {"s": 9}})))
            .has("/spec/x", 2)
            .has("/status", "$none")
            .has("/metadata/uid", "$=uid")
            .has("/metadata/labels", "$none")
            .has(GENERATION, 2)
            .has(VERSION, "$!a1")
            .keep("a2", VERSION),
        call("an old version", "PUT", format!("{SITES}/a"), 409)
            .body(replace(json!({"metadata": {"resourceVersion": "{a1}"}, "spec": {"x": 3}})))
            .reason("Conflict")
            .has("/details/name", "a"),
        call("another name than the path's", "PUT", format!("{SITES}/a"), 400)
            .body(a_site("b", &json!({"metadata": {"resourceVersion": "{a2}"}})))
            .reason("BadRequest"),
        call("another uid", "PUT", format!("{SITES}/a"), 409)
            .body(replace(json!({"metadata": {"resourceVersion": "{a2}", "uid": "x"}})))
            .reason("Conflict"),
        call("what is not there can't be replaced", "PUT", format!("{SITES}/none"), 404)
            .body(a_site("none", &json!({"metadata": {"resourceVersion": "5"}})))
            .reason("NotFound"),
        call("an old version of a lease", "PUT", format!("{LEASES}/l"), 409)
            .body(json!({"metadata": {"name": "l", "resourceVersion": "1"}, "spec": {"holderIdentity": "you"}}))
            .reason("Conflict"),
        call("a lease of this version", "PUT", format!("{LEASES}/l"), 200)
            .body(json!({"metadata": {"name": "l", "resourceVersion": "{l1}"}, "spec": {"holderIdentity": "you"}}))
            .has("/spec/holderIdentity", "you"),
        call("a replacement makes a lease", "PUT", format!("{LEASES}/new"), 201)
            .body(json!({"metadata": {"name": "new"}, "spec": {"holderIdentity": "me"}})),
        call("a lease without a version", "PUT", format!("{LEASES}/l"), 422)
            .body(json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "she"}}))
            .reason("Invalid"),
        call("labels are no new generation", "PUT", format!("{SITES}/a"), 200)
            .body(replace(json!({"metadata": {"resourceVersion": "{a2}", "labels": {"app": "web"}}, "spec": {"x": 2}})))
            .has(GENERATION, 2)
            .has(VERSION, "$!a2"),
    ]
}

fn patches() -> Vec<Call> {
    let a = || format!("{SITES}/a");
    vec![
        call("a merge patch", "PATCH", a(), 200)
            .patch(MERGE, json!({"spec": {"x": null, "y": 1}}))
            .has("/spec/x", "$none")
            .has("/spec/y", 1)
            .has(GENERATION, 3)
            .keep("a3", VERSION),
        call("one that changes nothing", "PATCH", a(), 200)
            .patch(MERGE, json!({"spec": {"y": 1}}))
            .has(VERSION, "$=a3")
            .has(GENERATION, 3),
        call("one with an old version", "PATCH", a(), 409)
            .patch(MERGE, json!({"metadata": {"resourceVersion": "{a1}"}, "spec": {"y": 2}}))
            .reason("Conflict"),
        call("one of what is not there", "PATCH", format!("{SITES}/none"), 404)
            .patch(MERGE, json!({"spec": {}}))
            .reason("NotFound"),
        call("one of the status through the object", "PATCH", a(), 200)
            .patch(MERGE, json!({"status": {"s": 1}}))
            .has("/status", "$none")
            .has(VERSION, "$=a3"),
        call("one of another name", "PATCH", a(), 400)
            .patch(MERGE, json!({"metadata": {"name": "b"}}))
            .reason("BadRequest"),
        call("a custom kind has no strategic merge patch", "PATCH", a(), 415)
            .patch(STRATEGIC, json!({"spec": {"y": 2}}))
            .reason("UnsupportedMediaType"),
        call("a body that is no patch", "PATCH", a(), 415)
            .patch(JSON, json!({"spec": {}}))
            .reason("UnsupportedMediaType"),
        call("a JSON patch", "PATCH", a(), 200)
            .patch(
                JSON_PATCH,
                json!([
                    {"op": "test", "path": "/metadata/finalizers", "value": null},
                    {"op": "add", "path": "/metadata/finalizers", "value": ["table.dev/one"]},
                ]),
            )
            .has("/metadata/finalizers/0", "table.dev/one")
            .has(GENERATION, 3),
        call("what is the server's stays", "PATCH", a(), 200)
            .patch(MERGE, json!({"metadata": {"generation": 99, "creationTimestamp": null, "uid": null}}))
            .has(GENERATION, 3)
            .has("/metadata/creationTimestamp", "$set")
            .has("/metadata/uid", "$=uid"),
        call("a patch whose answer is metadata alone", "PATCH", a(), 200)
            .patch(MERGE, json!({"metadata": {"annotations": {"x": "y"}}}))
            .accept(META)
            .has("/kind", "PartialObjectMetadata")
            .has("/metadata/annotations/x", "y")
            .has("/spec", "$none"),
        call("an annotation goes, and with it the map", "PATCH", a(), 200)
            .patch(MERGE, json!({"metadata": {"annotations": {"x": null}}}))
            .has("/metadata/annotations", "$none"),
        call("its test fails", "PATCH", a(), 422)
            .patch(
                JSON_PATCH,
                json!([
                    {"op": "test", "path": "/metadata/finalizers", "value": null},
                    {"op": "add", "path": "/metadata/finalizers", "value": ["table.dev/two"]},
                ]),
            )
            .reason("Invalid"),
        call("one that removes what is not there", "PATCH", a(), 422)
            .patch(JSON_PATCH, json!([{"op": "remove", "path": "/metadata/annotations/x"}]))
            .reason("Invalid"),
        call("one that adds to the end", "PATCH", a(), 200)
            .patch(
                JSON_PATCH,
                json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "table.dev/two"}]),
            )
            .has("/metadata/finalizers/1", "table.dev/two"),
        call("no operations", "PATCH", a(), 400)
            .patch(JSON_PATCH, json!({"op": "remove"}))
            .reason("BadRequest"),
        call("an apply makes the object", "PATCH", format!("{SITES}/s?fieldManager=one&force=true"), 201)
            .patch(APPLY, a_site("s", &json!({"spec": {"x": 1, "y": 2}})))
            .has("/spec/y", 2)
            .has(GENERATION, 1)
            .keep("s1", VERSION),
        call(
            "the same apply changes nothing",
            "PATCH",
            format!("{SITES}/s?fieldManager=one&force=true"),
            200,
        )
        .patch(APPLY, a_site("s", &json!({"spec": {"x": 1, "y": 2}})))
        .has(VERSION, "$=s1"),
        call("another manager adds", "PATCH", format!("{SITES}/s?fieldManager=two&force=true"), 200)
            .patch(APPLY, a_site("s", &json!({"spec": {"z": 3}})))
            .has("/spec/x", 1)
            .has("/spec/z", 3),
        call(
            "what a manager says no more goes",
            "PATCH",
            format!("{SITES}/s?fieldManager=one&force=true"),
            200,
        )
        .patch(APPLY, a_site("s", &json!({"spec": {"x": 1}})))
        .has("/spec/y", "$none")
        .has("/spec/z", 3)
        .has(GENERATION, 3),
        call("an apply without a manager", "PATCH", format!("{SITES}/s"), 422)
            .patch(APPLY, a_site("s", &json!({"spec": {"x": 1}})))
            .reason("Invalid"),
        call("an apply without a kind", "PATCH", format!("{SITES}/s?fieldManager=one"), 400)
            .patch(APPLY, json!({"metadata": {"name": "s"}}))
            .reason("BadRequest"),
        call("an apply of an old version", "PATCH", format!("{SITES}/s?fieldManager=one&force=true"), 409)
            .patch(APPLY, a_site("s", &json!({"metadata": {"resourceVersion": "{s1}"}, "spec": {"x": 7}})))
            .reason("Conflict"),
    ]
}

fn status() -> Vec<Call> {
    let status = || format!("{SITES}/a/status");
    vec![
        call("a status is patched", "PATCH", status(), 200)
            .patch(MERGE, json!({"spec": {"y": 9}, "status": {"s": 1}, "metadata": {"labels": {"l": "1"}}}))
            .has("/status/s", 1)
            .has("/spec/y", 1)
            .has("/metadata/labels/l", "$none")
            .has(GENERATION, 3)
            .has(VERSION, "$!a3")
            .keep("a4", VERSION),
        call("a status is replaced", "PUT", status(), 200)
            .body(a_site("a", &json!({"metadata": {"resourceVersion": "{a4}"}, "status": {"s": 2}})))
            .has("/status/s", 2)
            .has("/spec/y", 1)
            .keep("a5", VERSION),
        call("by an old version it is not", "PUT", status(), 409)
            .body(a_site("a", &json!({"metadata": {"resourceVersion": "{a4}"}, "status": {"s": 3}})))
            .reason("Conflict"),
        call("the status of what is not there", "PATCH", format!("{SITES}/none/status"), 404)
            .patch(MERGE, json!({"status": {}}))
            .reason("NotFound"),
        call("a status is applied", "PATCH", format!("{SITES}/a/status?fieldManager=one&force=true"), 200)
            .patch(APPLY, a_site("a", &json!({"status": {"t": 3}})))
            .has("/status/s", 2)
            .has("/status/t", 3),
        call("a write of the object leaves the status", "PATCH", format!("{SITES}/a"), 200)
            .patch(MERGE, json!({"spec": {"y": 2}}))
            .has("/status/s", 2)
            .has(GENERATION, 4)
            .keep("a6", VERSION),
    ]
}

/// Calls in which Kubernetes' own kinds differ.
fn of_kubernetes() -> Vec<Call> {
    let m = || format!("{MAPS}/m");
    let apply = |manager: &str| format!("{MAPS}/applied?fieldManager={manager}&force=true");
    vec![
        call("the status of a kind of Kubernetes", "PATCH", format!("{DEPLOYMENTS}/d/status"), 200)
            .patch(MERGE, json!({"spec": {"replicas": 9}, "status": {"replicas": 2, "observedGeneration": 2}}))
            .has("/spec/replicas", 2)
            .has("/status/replicas", 2)
            .has(GENERATION, 2),
        call("its labels are no new generation", "PATCH", format!("{DEPLOYMENTS}/d"), 200)
            .patch(MERGE, json!({"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 7}}))
            .has("/status/replicas", 2)
            .has(GENERATION, 2),
        call("a strategic merge patch of a map", "PATCH", m(), 200)
            .patch(STRATEGIC, json!({"data": {"k": null, "l": "1"}}))
            .has("/data/k", "$none")
            .has("/data/l", "1"),
        call("a merge patch of a map", "PATCH", m(), 200)
            .patch(MERGE, json!({"data": {"k": "w", "l": null}}))
            .has("/data", json!({"k": "w"}))
            .keep("m3", VERSION),
        call("a patch that changes nothing", "PATCH", m(), 200)
            .patch(STRATEGIC, json!({"data": {"k": "w"}}))
            .has(VERSION, "$=m3"),
        call("a map is applied", "PATCH", apply("one"), 201)
            .patch(APPLY, a_map("applied", &json!({"data": {"a": "1", "b": "2"}, "metadata": {"labels": {"x": "1"}}})))
            .has("/data/b", "2"),
        call("by another as well", "PATCH", apply("two"), 200)
            .patch(APPLY, a_map("applied", &json!({"data": {"b": "2", "c": "3"}})))
            .has("/data/c", "3"),
        call("what two apply stays when one says it no more", "PATCH", apply("one"), 200)
            .patch(APPLY, a_map("applied", &json!({"data": {"a": "1"}})))
            .has("/data", json!({"a": "1", "b": "2", "c": "3"}))
            .has("/metadata/labels", "$none"),
        call("and goes when both do", "PATCH", apply("two"), 200)
            .patch(APPLY, a_map("applied", &json!({"data": {"c": "3"}})))
            .has("/data", json!({"a": "1", "c": "3"})),
        call("a map gets a finalizer", "PATCH", format!("{MAPS}/applied"), 200)
            .patch(MERGE, json!({"metadata": {"finalizers": ["table.dev/one"]}})),
        call("a map with a finalizer stays", "DELETE", format!("{MAPS}/applied"), 200)
            .has("/kind", "ConfigMap")
            .has("/metadata/deletionTimestamp", "$set")
            .has(GENERATION, "$none"),
        call("it may still be changed", "PATCH", format!("{MAPS}/applied"), 200)
            .patch(MERGE, json!({"data": {"d": "4"}}))
            .has("/data/d", "4"),
        call("it goes with its finalizer", "PATCH", format!("{MAPS}/applied"), 200)
            .patch(MERGE, json!({"metadata": {"finalizers": []}})),
        call("it is gone", "GET", format!("{MAPS}/applied"), 404).reason("NotFound"),
        call("a deployment goes", "DELETE", format!("{DEPLOYMENTS}/d"), 200),
        call("a replacement of the status leaves the labels", "PUT", format!("{SITES}/a/status"), 200)
            .body(a_site("a", &json!({
                "metadata": {"resourceVersion": "{a6}", "labels": {"new": "1"}}, "spec": {"y": 77}, "status": {"s": 2, "t": 3},
            })))
            .has("/metadata/labels", json!({"app": "web"}))
            .has("/spec/y", 2)
            .has(VERSION, "$=a6"),
    ]
}

fn deletion() -> Vec<Call> {
    let a = || format!("{SITES}/a");
    vec![
        call("an object of another uid is not deleted", "DELETE", a(), 409)
            .body(json!({"preconditions": {"uid": "x"}}))
            .reason("Conflict"),
        call("nor one of another version", "DELETE", a(), 409)
            .body(json!({"preconditions": {"resourceVersion": "1"}}))
            .reason("Conflict"),
        call("an object with finalizers stays", "DELETE", a(), 200)
            .has("/kind", "Site")
            .has("/metadata/deletionTimestamp", "$set")
            .has("/metadata/deletionGracePeriodSeconds", 0)
            .has(GENERATION, 5)
            .keep("d1", VERSION),
        call("to delete it again changes nothing", "DELETE", a(), 200).has(VERSION, "$=d1"),
        call("it gets no new finalizers", "PATCH", a(), 422)
            .patch(
                MERGE,
                json!({"metadata": {"finalizers": ["table.dev/one", "table.dev/two", "table.dev/three"]}}),
            )
            .reason("Invalid"),
        call("one finalizer goes", "PATCH", a(), 200)
            .patch(JSON_PATCH, json!([{"op": "remove", "path": "/metadata/finalizers/0"}]))
            .has("/metadata/finalizers/0", "table.dev/two"),
        call("the last one goes", "PATCH", a(), 200)
            .patch(JSON_PATCH, json!([{"op": "remove", "path": "/metadata/finalizers/0"}]))
            .has("/metadata/finalizers", "$none"),
        call("and the object with it", "GET", a(), 404).reason("NotFound"),
        call("what is gone can't be deleted", "DELETE", a(), 404).reason("NotFound"),
        call("an object without finalizers goes", "DELETE", format!("{SITES}/s"), 200)
            .has("/kind", "Status")
            .has("/status", "Success")
            .has("/details/name", "s")
            .has("/details/kind", "sites")
            .has("/details/uid", "$set"),
        call("a dry run deletes nothing", "DELETE", format!("{MAPS}/m"), 200)
            .body(json!({"dryRun": ["All"]})),
        call("it is there", "GET", format!("{MAPS}/m"), 200).has(VERSION, "$=m3"),
    ]
}

fn lists() -> Vec<Call> {
    let mut calls = Vec::new();
    for (name, label) in [("l1", "one"), ("l2", "two"), ("l3", "one")] {
        let site = a_site(name, &json!({"metadata": {"labels": {"app": label}}, "spec": {"x": 1}}));
        calls.push(call("an object for lists", "POST", SITES, 201).body(site).keep("made-at", VERSION));
    }
    calls.extend([
        call("a list", "GET", SITES, 200)
            .has("/kind", "SiteList")
            .has("/apiVersion", "table.dev/v1")
            .has("/metadata/resourceVersion", "$set")
            .has("/items/0/kind", "Site")
            .has("/items/0/metadata/name", "l1")
            .has("/items/2/metadata/name", "l3")
            .has("/items/3", "$none"),
        call("of all namespaces", "GET", "/apis/table.dev/v1/sites", 200).has("/items/2/metadata/name", "l3"),
        call("of another namespace", "GET", "/apis/table.dev/v1/namespaces/none/sites", 200)
            .has("/items/0", "$none")
            .has("/items", json!([])),
        call("by label", "GET", format!("{SITES}?labelSelector=app%3Done"), 200)
            .has("/items/1/metadata/name", "l3")
            .has("/items/2", "$none"),
        call("by a set of labels", "GET", format!("{SITES}?labelSelector=app%20in%20(two,three),app"), 200)
            .has("/items/0/metadata/name", "l2")
            .has("/items/1", "$none"),
        call("by name", "GET", format!("{SITES}?fieldSelector=metadata.name%3Dl2"), 200)
            .has("/items/0/metadata/name", "l2")
            .has("/items/1", "$none"),
        call("by a field that is none", "GET", format!("{SITES}?fieldSelector=spec.nothing%3D2"), 400)
            .reason("BadRequest"),
        call("by a selector that is none", "GET", format!("{SITES}?labelSelector=a%20b"), 400)
            .reason("BadRequest"),
        call("its metadata alone", "GET", SITES, 200)
            .accept(META_LIST)
            .has("/kind", "PartialObjectMetadataList")
            .has("/items/0/kind", "PartialObjectMetadata")
            .has("/items/0/metadata/name", "l1")
            .has("/items/0/spec", "$none"),
        call("its first page", "GET", format!("{SITES}?limit=2"), 200)
            .has("/items/1/metadata/name", "l2")
            .has("/items/2", "$none")
            .has("/metadata/remainingItemCount", 1)
            .keep("page", "/metadata/continue")
            .keep("at", VERSION),
        call("its next page", "GET", format!("{SITES}?limit=2&continue={{page}}"), 200)
            .has("/items/0/metadata/name", "l3")
            .has("/metadata/continue", "")
            .has(VERSION, "$=at"),
        call("a page that is none", "GET", format!("{SITES}?limit=2&continue=x"), 400).reason("BadRequest"),
        call(
            "at any version",
            "GET",
            format!("{SITES}?resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            200,
        )
        .has("/items/2/metadata/name", "l3"),
        call("a match without a version", "GET", format!("{SITES}?resourceVersionMatch=NotOlderThan"), 422)
            .reason("Invalid"),
        call("at a version that is yet to come", "GET", format!("{SITES}?resourceVersion=999999999"), 504)
            .reason("Timeout"),
        call("at a version that is none", "GET", format!("{SITES}?resourceVersion=x"), 400)
            .reason("BadRequest"),
        call(
            "exactly at a version",
            "GET",
            format!("{SITES}?resourceVersion={{made-at}}&resourceVersionMatch=Exact"),
            200,
        )
        .has(VERSION, "$=made-at")
        .has("/items/2/metadata/name", "l3"),
        call(
            "one of Kubernetes' kinds leaves out what each item is",
            "GET",
            format!("{MAPS}?fieldSelector=metadata.name%3Dm"),
            200,
        )
        .has("/kind", "ConfigMapList")
        .has("/items/0/kind", "$none")
        .has("/items/0/metadata/name", "m"),
    ]);
    calls
}

fn watches() -> Vec<Call> {
    let watch = |more: &str| format!("{SITES}?watch=1&timeoutSeconds=2{more}");
    vec![
        call("a change for watches", "PATCH", format!("{SITES}/l1"), 200).patch(MERGE, json!({"spec": {"x": 2}})),
        call("a change of labels", "PATCH", format!("{SITES}/l1"), 200)
            .patch(MERGE, json!({"metadata": {"labels": {"app": "two"}}})),
        call("a deletion", "DELETE", format!("{SITES}/l3"), 200),
        call("a watch from a version", "GET", watch("&resourceVersion={at}"), 200)
            .has("/0/type", "MODIFIED")
            .has("/0/object/spec/x", 2)
            .has("/0/object/kind", "Site")
            .has("/1/object/metadata/labels/app", "two")
            .keep("labelled", "/1/object/metadata/resourceVersion")
            .has("/2/type", "DELETED")
            .has("/2/object/metadata/name", "l3")
            .has("/2/object/metadata/resourceVersion", "$!labelled")
            .has("/3", "$none"),
        call("what a selector leaves behind has gone", "GET", watch("&resourceVersion={at}&labelSelector=app%3Done"), 200)
            .has("/0/type", "MODIFIED")
            .has("/1/type", "DELETED")
            .has("/1/object/metadata/name", "l1")
            .has("/1/object/metadata/resourceVersion", "$=labelled")
            .has("/2/type", "DELETED")
            .has("/3", "$none"),
        call("what comes under a selector is new", "GET", watch("&resourceVersion={at}&labelSelector=app%3Dtwo"), 200)
            .has("/0/type", "ADDED")
            .has("/0/object/metadata/name", "l1")
            .has("/1", "$none"),
        call("a watch of one object", "GET", watch("&resourceVersion={at}&fieldSelector=metadata.name%3Dl3"), 200)
            .has("/0/type", "DELETED")
            .has("/1", "$none"),
        call("a watch from any version", "GET", watch("&resourceVersion=0"), 200)
            .has("/0/type", "ADDED")
            .has("/1/type", "ADDED")
            .has("/2", "$none"),
        call("a watch from no version", "GET", watch(""), 200).has("/1/type", "ADDED").has("/2", "$none"),
        call("a watch of metadata", "GET", watch("&resourceVersion={at}"), 200)
            .accept(META)
            .has("/0/object/kind", "PartialObjectMetadata")
            .has("/0/object/metadata/name", "l1")
            .has("/0/object/spec", "$none"),
        call(
            "a watch that begins with the list",
            "GET",
            watch("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0"),
            200,
        )
        .has("/0/type", "ADDED")
        .has("/1/type", "ADDED")
        .has("/2/type", "BOOKMARK")
        .has("/2/object/kind", "Site")
        .has("/2/object/metadata/annotations/k8s.io~1initial-events-end", "true"),
        call("such a watch must say which", "GET", watch("&sendInitialEvents=true&allowWatchBookmarks=true"), 422)
            .reason("Invalid"),
        call("a version that is none", "GET", watch("&resourceVersion=x"), 500).has("/reason", "$none"),
        call("a version from long ago", "GET", watch("&resourceVersion=1"), 200)
            .after_all_is_forgotten()
            .has("/0/type", "ERROR")
            .has("/0/object/kind", "Status")
            .has("/0/object/code", 410)
            .has("/0/object/reason", "Expired")
            .has("/1", "$none"),
        call("objects with finalizers are deleted together with others", "PATCH", format!("{SITES}/l1"), 200)
            .patch(MERGE, json!({"metadata": {"finalizers": ["table.dev/one"]}})),
        call("a collection is deleted", "DELETE", SITES, 200).has("/kind", "SiteList").has("/items/1/metadata/name", "l2"),
        call("what has finalizers is left", "GET", SITES, 200)
            .has("/items/0/metadata/name", "l1")
            .has("/items/0/metadata/deletionTimestamp", "$set")
            .has("/items/1", "$none"),
        call("it goes with them", "PATCH", format!("{SITES}/l1"), 200).patch(MERGE, json!({"metadata": {"finalizers": null}})),
        call("nothing is left", "GET", SITES, 200).has("/items", json!([])),
        call("no method of a collection", "PUT", MAPS, 405).body(json!({})).reason("MethodNotAllowed"),
        call("the same of a custom kind", "PUT", SITES, 400).body(json!({})).reason("BadRequest"),
        call("no method of an object", "POST", format!("{MAPS}/m"), 405).body(json!({})).reason("MethodNotAllowed"),
        call("no object without a namespace", "POST", "/api/v1/configmaps", 405)
            .body(a_map("n", &json!({})))
            .reason("MethodNotAllowed"),
    ]
}

fn table() -> Vec<Call> {
    [creation(), replacement(), patches(), status(), of_kubernetes(), deletion(), lists(), watches()]
        .into_iter()
        .flatten()
        .collect()
}

/// Replaces names of kept values by the values.
fn fill(text: &str, kept: &HashMap<&'static str, String>) -> String {
    kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// A server's answers, call by call, and their differences from the table.
#[derive(Default)]
struct Outcome {
    answers: Vec<(String, u16, Value)>,
    wrong: Vec<String>,
}

async fn run(client: &Client, forget: impl Fn()) -> Outcome {
    let mut kept = HashMap::<&'static str, String>::new();
    let mut outcome = Outcome::default();
    for call in table() {
        if call.forget {
            forget();
        }
        let (code, body) = ask(client, &call, &kept).await;
        for (name, pointer) in &call.kept {
            kept.insert(name, body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        let named = format!("{} ({} {})", call.what, call.method, call.path);
        let mut say = |what: String| outcome.wrong.push(format!("{named}: {what}\n    {body}"));
        if code != call.code {
            say(format!("the code is {code}, not {}", call.code));
        }
        if let Some(reason) = call.reason
            && body["reason"] != reason
        {
            say(format!("the reason is {}, not {reason}", body["reason"]));
        }
        for (pointer, expected) in &call.parts {
            let part = body.pointer(pointer);
            let text = part.and_then(Value::as_str).unwrap_or_default();
            let right = match expected.as_str() {
                Some("$set") => part.is_some_and(|part| !part.is_null()),
                Some("$none") => part.is_none(),
                Some(word) if word.starts_with("$=") => !text.is_empty() && kept[&word[2..]] == text,
                Some(word) if word.starts_with("$!") => !text.is_empty() && kept[&word[2..]] != text,
                _ => part == Some(expected),
            };
            if !right {
                say(format!("{pointer} is {part:?}, not {expected}"));
            }
        }
        outcome.answers.push((named, code, comparable(&body)));
    }
    outcome
}

/// An answer without the parts that differ between servers, and without those that the fake server does not
/// support.
fn comparable(body: &Value) -> Value {
    match body {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| {
                // `causes` and `message` are words for people.
                !["managedFields", "message", "causes", "retryAfterSeconds"].contains(&name.as_str())
            });
            let fields = fields.map(|(name, value)| {
                let differs =
                    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "continue"];
                let is_made = name == "name" && value.as_str().is_some_and(|name| name.starts_with("made-"));
                let is_set = is_made || (differs.contains(&name.as_str()) && value != "");
                (name.clone(), if is_set { json!("is set") } else { comparable(value) })
            });
            Value::Object(fields.collect())
        }
        Value::Array(values) => {
            // A server sends bookmarks when it likes, but for the one at the end of the first events.
            let is_any = |value: &Value| {
                value["type"] == "BOOKMARK" && value["object"]["metadata"].get("annotations").is_none()
            };
            values.iter().filter(|value| !is_any(value)).map(comparable).collect()
        }
        other => other.clone(),
    }
}

/// The code and the body of an answer. The lines of a watch are an array.
async fn ask(client: &Client, call: &Call, kept: &HashMap<&'static str, String>) -> (u16, Value) {
    let body = call.body.as_ref().map(|body| fill(&body.to_string(), kept)).unwrap_or_default();
    let request = http::Request::builder()
        .method(call.method)
        .uri(fill(&call.path, kept))
        .header("accept", call.accept)
        .header("content-type", call.content)
        .body(Body::from(body.into_bytes()))
        .unwrap();
    let whole = async {
        let answer = client.send(request).await.unwrap();
        (answer.status().as_u16(), answer.into_body().collect_bytes().await.unwrap())
    };
    let whole = tokio::time::timeout(Duration::from_secs(30), whole).await;
    let Ok((code, bytes)) = whole else { return (0, json!("there is no end of the answer")) };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = if call.path.contains("watch=1") && code == 200 {
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect()
    } else {
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    };
    (code, body)
}

fn resource(api_version: &str, kind: &str, plural: &str) -> kube::api::ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    kube::api::ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

async fn run_on_the_fake() -> Outcome {
    let server = fake::Server::new()
        .with_dyn(&resource("table.dev/v1", "Site", "sites"), true, true)
        .with::<k8s_openapi::api::core::v1::ConfigMap>()
        .with::<k8s_openapi::api::apps::v1::Deployment>()
        .with::<k8s_openapi::api::coordination::v1::Lease>();
    run(&server.client(), || server.drop_watches_with_410()).await
}

#[tokio::test(start_paused = true)]
async fn the_fake_server_answers_as_the_table_says() {
    let wrong = run_on_the_fake().await.wrong;
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Compares the parts that the table names, and all others field by field.
#[tokio::test]
async fn a_real_server_answers_as_the_table_says_and_as_the_fake_one() {
    let Some(server) = server::Server::start().await else { return };
    // One that tells each answer: kube's client tries again after a 504.
    let mut config = server.config();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.table.dev"},
        "spec": {
            "group": "table.dev", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    });
    let none = HashMap::new();
    let made = call("", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", 201).body(kind);
    assert_eq!(ask(&client, &made, &none).await.0, 201);
    let namespace = call("", "POST", "/api/v1/namespaces", 201).body(json!({"metadata": {"name": "table"}}));
    assert_eq!(ask(&client, &namespace, &none).await.0, 201);
    let end = std::time::Instant::now() + Duration::from_secs(300);
    while ask(&client, &call("", "GET", SITES, 200), &none).await.0 != 200 {
        assert!(std::time::Instant::now() < end, "the kind does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let real = run(&client, || ()).await;
    let mut wrong = real.wrong;
    for ((call, code, real), (_, _, fake)) in real.answers.iter().zip(&run_on_the_fake().await.answers) {
        // The fake server sets no defaults.
        if !call.contains(DEPLOYMENTS) && real != fake {
            wrong.push(format!("{call}: {code}\n    real: {real}\n    fake: {fake}"));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
