//! Turns a request into its answer.

use super::kinds::Target;
use super::patch;
use super::refusal::Refusal;
use super::select::Select;
use super::state::{Page, State};
use super::store::{Deleted, Key, Part, Store, Written};
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// A parsed request.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: HashMap<String, String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        matches!(self.parameter(name), Some("true" | "1"))
    }

    pub(super) fn select(&self) -> Result<Select, Refusal> {
        Select::parse(self.parameter("labelSelector"), self.parameter("fieldSelector"))
    }

    /// Whether only the objects' metadata is requested.
    pub(super) fn metadata_only(&self) -> bool {
        let accept = self.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
        accept.is_some_and(|accept| accept.contains("as=PartialObjectMetadata"))
    }

    /// The verb as Kubernetes' access rules name it.
    pub(super) fn verb(&self, target: &Target) -> Option<&'static str> {
        Some(match (&self.method, &target.name) {
            (&Method::GET, None) if self.is_set("watch") => "watch",
            (&Method::GET, None) => "list",
            (&Method::GET, Some(_)) => "get",
            (&Method::POST, None) => "create",
            (&Method::PUT, Some(_)) => "update",
            (&Method::PATCH, Some(_)) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => return None,
        })
    }

    fn json(&self) -> Result<Value, Refusal> {
        serde_json::from_slice(&self.body)
            .map_err(|e| Refusal::bad_request(format!("the body is not JSON: {e}")))
    }

    fn delete_options(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() { Ok(Value::Null) } else { self.json() }
    }

    fn is_dry(&self) -> bool {
        let in_body = || self.delete_options().is_ok_and(|options| options["dryRun"] == json!(["All"]));
        self.parameter("dryRun") == Some("All") || (self.method == Method::DELETE && in_body())
    }
}

/// Whether a verb writes.
pub(super) fn writes(verb: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch")
}

/// The metadata of an object, as a server sends it if only metadata is requested.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// The answer to a request that is not a watch: its code and body.
pub(super) fn answer(
    state: &mut State,
    target: &Target,
    verb: &str,
    request: &Request,
) -> Result<(u16, Value), Refusal> {
    if verb == "list" {
        return list(state, target, request);
    }
    if writes(verb) && request.is_dry() {
        let mut trial = state.store.clone();
        let (code, mut body) = change(&mut trial, target, verb, request)?;
        if let Some(meta) = body["metadata"].as_object_mut().filter(|_| code == 201) {
            meta.remove("resourceVersion"); // it has none before it is stored
        }
        return Ok((code, body));
    }
    change(&mut state.store, target, verb, request)
}

fn change(
    store: &mut Store,
    target: &Target,
    verb: &str,
    request: &Request,
) -> Result<(u16, Value), Refusal> {
    let kind = store.kinds[target.kind].clone();
    let namespace = target.namespace.as_deref();
    let part = if target.status { Part::Status } else { Part::Main };
    let key: Key =
        (target.kind, namespace.unwrap_or_default().to_owned(), target.name.clone().unwrap_or_default());
    let shown = |object: &Value| if request.metadata_only() { partial(object) } else { object.clone() };
    let told = |written: Written| (if written.created { 201 } else { 200 }, shown(&written.object));
    match verb {
        "get" => Ok((200, shown(&*store.get(&key)?))),
        "create" if kind.namespaced && namespace.is_none() => Err(Refusal::not_allowed()),
        "create" => store.create(target.kind, namespace, request.json()?).map(told),
        "update" => store.replace(&key, part, request.json()?).map(told),
        "patch" => patched(store, &key, part, request).map(told),
        "delete" if target.status => Err(Refusal::not_allowed()),
        "delete" => {
            let options = request.delete_options()?;
            match store.delete(&key, &options)? {
                Deleted::Waits(object) => Ok((200, shown(&object))),
                Deleted::Gone(object) => {
                    let mut details =
                        json!({"name": key.2, "kind": kind.plural, "uid": object["metadata"]["uid"]});
                    if !kind.group.is_empty() {
                        details["group"] = json!(kind.group);
                    }
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                    });
                    Ok((200, status))
                }
            }
        }
        "deletecollection" => {
            let (select, options) = (request.select()?, request.delete_options()?);
            let objects = selected(store.objects.iter(), target, &select);
            for (key, _) in &objects {
                store.delete(key, &options)?;
            }
            // As they were before.
            let (items, version) = (objects.iter().map(|(_, object)| object), store.version);
            Ok((200, a_list(store, target, request, items, json!({"resourceVersion": version.to_string()}))))
        }
        _ => Err(Refusal::not_allowed()),
    }
}

fn patched(store: &mut Store, key: &Key, part: Part, request: &Request) -> Result<Written, Refusal> {
    let content = request.headers.get(http::header::CONTENT_TYPE).and_then(|content| content.to_str().ok());
    let content = content.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let kind = store.kind(key).clone();
    let new = match content {
        "application/apply-patch+yaml" => {
            let body = request.json()?;
            let Some(manager) = request.parameter("fieldManager") else {
                let why = "fieldManager: Required value: is required for apply patch";
                return Err(Refusal::invalid_options("PatchOptions", why));
            };
            for field in ["kind", "apiVersion"] {
                if !body[field].is_string() {
                    return Err(Refusal::bad_request(format!("invalid object type: {field} is not set")));
                }
            }
            if body["metadata"]["name"].as_str().is_some_and(|name| name != key.2) {
                let why = format!(
                    "the name of the object ({}) does not match the name on the URL ({})",
                    body["metadata"]["name"].as_str().unwrap_or_default(),
                    key.2
                );
                return Err(Refusal::bad_request(why));
            }
            return store.apply(key, part, manager, body);
        }
        "application/merge-patch+json" => patch::merge(&*store.get(key)?, &request.json()?),
        "application/strategic-merge-patch+json" if kind.builtin => {
            patch::merge(&*store.get(key)?, &request.json()?)
        }
        "application/json-patch+json" => {
            let object = store.get(key)?;
            let operations: Vec<json_patch::PatchOperation> = serde_json::from_slice(&request.body)
                .map_err(|e| Refusal::bad_request(format!("the body is not a JSON patch: {e}")))?;
            patch::json(&object, &operations)?
        }
        other => {
            let why = format!(
                "the body of the request was in an unknown format - {other:?} is no patch of this kind"
            );
            return Err(Refusal::new(415, "UnsupportedMediaType", why));
        }
    };
    let said = new["metadata"]["name"].as_str().unwrap_or_default();
    if said != key.2 {
        let why = format!("the name of the object ({said}) does not match the name on the URL ({})", key.2);
        return Err(Refusal::bad_request(why));
    }
    store.update(key, part, new)
}

fn selected<'o>(
    objects: impl Iterator<Item = (&'o Key, &'o Arc<Value>)>,
    target: &Target,
    select: &Select,
) -> Vec<(Key, Arc<Value>)> {
    let is_meant = |key: &Key, object: &Value| {
        key.0 == target.kind
            && target.namespace.as_ref().is_none_or(|namespace| *namespace == key.1)
            && select.matches(object)
    };
    objects
        .filter(|(key, object)| is_meant(key, object))
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect()
}

fn list(state: &mut State, target: &Target, request: &Request) -> Result<(u16, Value), Refusal> {
    let limit = match request.parameter("limit").map(str::parse::<usize>) {
        None | Some(Ok(0)) => None,
        Some(Ok(limit)) => Some(limit),
        Some(Err(_)) => return Err(Refusal::bad_request("limit is not a number")),
    };
    let (version, exactly) =
        (request.parameter("resourceVersion"), request.parameter("resourceVersionMatch"));
    if let Some(token) = request.parameter("continue") {
        if version.is_some_and(|version| version != "0") {
            return Err(Refusal::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (number, from) = token
            .split_once('-')
            .and_then(|(number, from)| Some((number.parse().ok()?, from.parse().ok()?)))
            .ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
        let page = state.page(number).filter(|page| page.version >= state.store.forgotten(target.kind));
        let page = page.ok_or_else(|| {
            Refusal::expired(
                "The provided continue parameter is too old to display a consistent list result.",
            )
        })?;
        return Ok((200, page_of(state, target, request, &page, number, from, limit)));
    }
    if exactly.is_some() && version.is_none() {
        let why = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        return Err(Refusal::invalid_options("ListOptions", why));
    }
    let asked = match version.map(str::parse::<u64>) {
        None => None,
        Some(Ok(version)) => Some(version),
        Some(Err(_)) => {
            let why = format!(
                "resourceVersion: Invalid value: {:?}: it is not a number",
                version.unwrap_or_default()
            );
            return Err(Refusal::bad_request(why));
        }
    };
    let select = request.select()?;
    let store = &state.store;
    if asked.is_some_and(|asked| asked > store.version) {
        let why =
            format!("Too large resource version: {}, current: {}", asked.unwrap_or_default(), store.version);
        return Err(Refusal::without_object(504, "Timeout", why));
    }
    let (version, objects) = match (asked, exactly) {
        (Some(at), Some("Exact")) => {
            if at < store.forgotten(target.kind) {
                return Err(Refusal::expired("The resourceVersion for the provided list is too old."));
            }
            (at, selected(store.at(target.kind, at).iter(), target, &select))
        }
        _ => (store.version, selected(store.objects.iter(), target, &select)),
    };
    let items = objects.into_iter().map(|(_, object)| object).collect();
    // A list at any version comes from memory, and in one piece.
    let limit = limit.filter(|_| asked != Some(0));
    let page = Page { version, items };
    let number = state.keep(page.clone(), limit);
    Ok((200, page_of(state, target, request, &page, number, 0, limit)))
}

fn page_of(
    state: &State,
    target: &Target,
    request: &Request,
    page: &Page,
    number: u64,
    from: usize,
    limit: Option<usize>,
) -> Value {
    let from = from.min(page.items.len());
    let to = limit.map_or(page.items.len(), |limit| from.saturating_add(limit).min(page.items.len()));
    let mut meta = json!({"resourceVersion": page.version.to_string()});
    if to < page.items.len() {
        meta["continue"] = json!(format!("{number}-{to}"));
        meta["remainingItemCount"] = json!(page.items.len() - to);
    }
    a_list(&state.store, target, request, page.items[from..to].iter(), meta)
}

fn a_list<'o>(
    store: &Store,
    target: &Target,
    request: &Request,
    items: impl Iterator<Item = &'o Arc<Value>>,
    mut meta: Value,
) -> Value {
    let kind = &store.kinds[target.kind];
    if request.metadata_only() {
        let items: Vec<_> = items.map(|object| partial(object)).collect();
        return json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items,
        });
    }
    if !kind.builtin && meta.get("continue").is_none() {
        meta["continue"] = json!(""); // so it is in lists of custom kinds
    }
    let items = items.map(|object| {
        let mut item = (**object).clone();
        // In lists of its own kinds a server leaves these out.
        if let Some(item) = item.as_object_mut().filter(|_| kind.builtin) {
            item.remove("kind");
            item.remove("apiVersion");
        }
        item
    });
    json!({
        "kind": format!("{}List", kind.kind),
        "apiVersion": kind.api_version,
        "metadata": meta,
        "items": items.collect::<Vec<_>>(),
    })
}
