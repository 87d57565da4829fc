//! The objects of a server, and how writes change them.

use super::kinds::Kind;
use super::patch;
use super::refusal::Refusal;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Maximum number of changes remembered for watches that come late. A watch from before them is refused
/// with 410.
const REMEMBERED: usize = 50_000;
/// Letters that API servers use for generated names.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Kind, namespace (empty for a kind that has none) and name.
pub(super) type Key = (usize, String, String);

/// A change of an object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) old: Option<Arc<Value>>,
    /// `None` if the object went.
    pub(super) new: Option<Arc<Value>>,
    /// A watch's final version of a deleted object, with the version of this change.
    pub(super) last: Option<Arc<Value>>,
}

/// The objects, and their changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) kinds: Vec<Kind>,
    pub(super) objects: BTreeMap<Key, Arc<Value>>,
    pub(super) version: u64,
    pub(super) changes: VecDeque<Change>,
    /// Oldest remembered version, of everything and of each kind.
    forgotten: u64,
    forgotten_of: HashMap<usize, u64>,
    /// Each manager's last apply, by object.
    applied: HashMap<Key, BTreeMap<String, Value>>,
    made: u64,
}

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All but its status, if its kind has a status subresource.
    Main,
    Status,
}

/// Result of a write.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) object: Arc<Value>,
    /// The object did not exist before.
    pub(super) created: bool,
}

/// Result of a deletion.
#[derive(Debug)]
pub(super) enum Deleted {
    Gone(Arc<Value>),
    /// It waits for its finalizers.
    Waits(Arc<Value>),
}

impl Store {
    pub(super) fn kind(&self, key: &Key) -> &Kind {
        &self.kinds[key.0]
    }

    pub(super) fn get(&self, key: &Key) -> Result<Arc<Value>, Refusal> {
        self.objects.get(key).cloned().ok_or_else(|| Refusal::not_found(self.kind(key), &key.2))
    }

    /// The oldest version from which a watch of this kind can continue.
    pub(super) fn forgotten(&self, kind: usize) -> u64 {
        self.forgotten.max(self.forgotten_of.get(&kind).copied().unwrap_or_default())
    }

    /// Forgets the changes so far: a watch of this kind, or of any kind if `None`, can no longer continue
    /// from an earlier version.
    pub(super) fn forget(&mut self, kind: Option<usize>) {
        match kind {
            Some(kind) => drop(self.forgotten_of.insert(kind, self.version)),
            None => {
                self.forgotten = self.version;
                self.changes.clear();
            }
        }
    }

    /// Creates an object.
    pub(super) fn create(
        &mut self,
        kind: usize,
        namespace: Option<&str>,
        body: Value,
    ) -> Result<Written, Refusal> {
        let of = self.kinds[kind].clone();
        let mut object = body;
        check_body(&of, namespace, &object)?;
        let meta = metadata(&mut object)?;
        if meta.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::new(500, "", why));
        }
        let name = self.name_for(&of, meta)?;
        let key = (kind, namespace.unwrap_or_default().to_owned(), name);
        if self.objects.contains_key(&key) {
            return Err(Refusal::exists(&of, &key.2));
        }
        self.made += 1;
        let meta = metadata(&mut object)?;
        meta.insert("name".into(), json!(key.2));
        if let Some(namespace) = namespace {
            meta.insert("namespace".into(), json!(namespace));
        }
        for system in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
            meta.remove(system);
        }
        meta.insert(
            "uid".into(),
            json!(format!("{:08x}-0000-4000-8000-{:012x}", self.made >> 16, self.made)),
        );
        meta.insert("creationTimestamp".into(), json!(now()));
        if of.generations {
            meta.insert("generation".into(), json!(1));
        }
        if of.has_status {
            remove(&mut object, "status");
        }
        complete(&of, &mut object);
        let object = self.commit(key, object);
        Ok(Written { object, created: true })
    }

    /// Replaces an object as a PUT does.
    pub(super) fn replace(&mut self, key: &Key, part: Part, body: Value) -> Result<Written, Refusal> {
        let kind = self.kind(key).clone();
        let namespace = kind.namespaced.then_some(key.1.as_str());
        check_body(&kind, namespace, &body)?;
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        if name != key.2 {
            let why =
                format!("the name of the object ({name}) does not match the name on the URL ({})", key.2);
            return Err(Refusal::bad_request(why));
        }
        if !self.objects.contains_key(key) && kind.replace_creates {
            return self.create(key.0, namespace, body);
        }
        self.get(key)?;
        let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if version.is_empty() && !kind.unconditional {
            return Err(Refusal::no_version(&kind, &key.2));
        }
        self.update(key, part, body)
    }

    /// Updates an existing object to `new`. A version in it is a precondition.
    pub(super) fn update(&mut self, key: &Key, part: Part, mut new: Value) -> Result<Written, Refusal> {
        let kind = self.kind(key).clone();
        let old = self.get(key)?;
        let old_meta = &old["metadata"];
        let meta = metadata(&mut new)?;
        let said = |field: &str| meta.get(field).and_then(Value::as_str).filter(|said| !said.is_empty());
        if said("uid").is_some_and(|uid| old_meta["uid"] != uid) {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                said("uid").unwrap_or_default(),
                old_meta["uid"].as_str().unwrap_or_default()
            );
            return Err(Refusal::conflict(&kind, &key.2, &why));
        }
        if said("resourceVersion").is_some_and(|version| old_meta["resourceVersion"] != version) {
            return Err(Refusal::stale(&kind, &key.2));
        }
        if part == Part::Status {
            let status = new.get("status").cloned();
            new = (*old).clone();
            set(&mut new, "status", status);
        } else if kind.has_status {
            set(&mut new, "status", old.get("status").cloned());
        }
        let meta = metadata(&mut new)?;
        let of_the_system =
            ["name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp"];
        for system in
            of_the_system.into_iter().chain(["deletionGracePeriodSeconds", "resourceVersion", "generateName"])
        {
            match old_meta.get(system) {
                Some(value) => drop(meta.insert(system.into(), value.clone())),
                None => drop(meta.remove(system)),
            }
        }
        complete(&kind, &mut new);
        let is_deleted = old_meta.get("deletionTimestamp").is_some();
        if is_deleted {
            let new_ones = strings(&new["metadata"]["finalizers"]);
            let old_ones = strings(&old_meta["finalizers"]);
            let added: Vec<_> = new_ones.into_iter().filter(|name| !old_ones.contains(name)).collect();
            if !added.is_empty() {
                let why = format!(
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
                     found new finalizers {added:?}"
                );
                return Err(Refusal::invalid(&kind, &key.2, &why));
            }
        }
        if new == *old {
            return Ok(Written { object: old, created: false });
        }
        if kind.generations && asked_for(&kind, &new) != asked_for(&kind, &old) {
            new["metadata"]["generation"] = json!(old_meta["generation"].as_i64().unwrap_or_default() + 1);
        }
        if is_deleted && strings(&new["metadata"]["finalizers"]).is_empty() {
            let object = Arc::new(new);
            self.objects.insert(key.clone(), object.clone());
            self.remove(key);
            return Ok(Written { object, created: false });
        }
        Ok(Written { object: self.commit(key.clone(), new), created: false })
    }

    /// Executes a server-side apply. Creates the object if it does not exist.
    pub(super) fn apply(
        &mut self,
        key: &Key,
        part: Part,
        manager: &str,
        body: Value,
    ) -> Result<Written, Refusal> {
        let kind = self.kind(key).clone();
        let namespace = kind.namespaced.then_some(key.1.as_str());
        check_body(&kind, namespace, &body)?;
        let mut said = body.clone();
        if let Some(meta) = said.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("resourceVersion");
            meta.remove("uid");
        }
        let written = match self.objects.get(key).cloned() {
            None if part == Part::Status => return Err(Refusal::not_found(&kind, &key.2)),
            None => {
                let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                if !version.is_empty() {
                    return Err(Refusal::stale(&kind, &key.2));
                }
                let mut object = body;
                metadata(&mut object)?.insert("name".into(), json!(key.2));
                self.create(key.0, namespace, object)?
            }
            Some(old) => {
                let applied = self.applied.get(key);
                let others = applied.into_iter().flatten().filter(|(by, _)| *by != manager);
                let others: Vec<&Value> = others.map(|(_, said)| said).collect();
                let before = applied.and_then(|applied| applied.get(manager));
                let mut new = patch::apply(&old, before, &others, &said);
                let version = &body["metadata"]["resourceVersion"];
                if version.as_str().is_some_and(|version| !version.is_empty()) {
                    new["metadata"]["resourceVersion"] = version.clone();
                }
                self.update(key, part, new)?
            }
        };
        if self.objects.contains_key(key) {
            self.applied.entry(key.clone()).or_default().insert(manager.to_owned(), said);
        }
        Ok(written)
    }

    /// Deletes an object, or marks it if it has finalizers.
    pub(super) fn delete(&mut self, key: &Key, options: &Value) -> Result<Deleted, Refusal> {
        let kind = self.kind(key).clone();
        let object = self.get(key)?;
        let meta = &object["metadata"];
        for (field, name) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let wanted = &options["preconditions"][field];
            if wanted.is_string() && *wanted != meta[field] {
                let (wanted, has) =
                    (wanted.as_str().unwrap_or_default(), meta[field].as_str().unwrap_or_default());
                let why = format!(
                    "Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {has}"
                );
                return Err(Refusal::precondition(&kind, &key.2, &why));
            }
        }
        if strings(&meta["finalizers"]).is_empty() {
            return Ok(Deleted::Gone(self.remove(key).unwrap_or(object)));
        }
        if meta.get("deletionTimestamp").is_some() {
            return Ok(Deleted::Waits(object));
        }
        let mut marked = (*object).clone();
        let meta = metadata(&mut marked)?;
        meta.insert("deletionTimestamp".into(), json!(now()));
        meta.insert("deletionGracePeriodSeconds".into(), json!(0));
        if let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
            meta.insert("generation".into(), json!(generation + 1));
        }
        Ok(Deleted::Waits(self.commit(key.clone(), marked)))
    }

    /// Deletes the objects all of whose owners are gone, and those that this leaves without owners.
    pub(super) fn collect_orphans(&mut self) -> usize {
        let mut collected = 0;
        loop {
            let uids = self.objects.values().filter_map(|object| object["metadata"]["uid"].as_str());
            let there: HashSet<&str> = uids.collect();
            let is_orphan = |object: &Value| {
                let owners =
                    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
                let is_gone = |owner: &Value| !owner["uid"].as_str().is_some_and(|uid| there.contains(uid));
                object["metadata"].get("deletionTimestamp").is_none()
                    && !owners.is_empty()
                    && owners.iter().all(is_gone)
            };
            let orphans: Vec<Key> = self
                .objects
                .iter()
                .filter(|(_, object)| is_orphan(object))
                .map(|(key, _)| key.clone())
                .collect();
            if orphans.is_empty() {
                return collected;
            }
            for key in orphans {
                collected += usize::from(self.delete(&key, &Value::Null).is_ok());
            }
        }
    }

    /// The objects at a remembered version.
    pub(super) fn at(&self, kind: usize, version: u64) -> BTreeMap<Key, Arc<Value>> {
        let mut objects = self.objects.clone();
        for change in self.changes.iter().rev().take_while(|change| change.version > version) {
            match &change.old {
                Some(old) => drop(objects.insert(change.key.clone(), old.clone())),
                None => drop(objects.remove(&change.key)),
            }
        }
        objects.retain(|key, _| key.0 == kind);
        objects
    }

    fn commit(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let old = self.objects.insert(key.clone(), object.clone());
        self.remember(Change { version: self.version, key, old, new: Some(object.clone()), last: None });
        object
    }

    /// Removes an object. Returns a watch's final version of it.
    fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?;
        self.applied.remove(key);
        self.version += 1;
        let mut last = (*old).clone();
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(last);
        self.remember(Change {
            version: self.version,
            key: key.clone(),
            old: Some(old.clone()),
            new: None,
            last: Some(last),
        });
        Some(old)
    }

    fn remember(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > REMEMBERED
            && let Some(oldest) = self.changes.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.version);
        }
    }

    fn name_for(&mut self, kind: &Kind, meta: &Map<String, Value>) -> Result<String, Refusal> {
        let said = |field: &str| meta.get(field).and_then(Value::as_str).filter(|said| !said.is_empty());
        let name = match (said("name"), said("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => {
                // Not by chance: a test that is run again makes the same names.
                let mut number = self.made;
                let suffix = (0..5).map(|_| {
                    let letter = LETTERS[(number % LETTERS.len() as u64) as usize];
                    number /= LETTERS.len() as u64;
                    char::from(letter)
                });
                format!("{prefix}{}", suffix.collect::<String>())
            }
            (None, None) => {
                let why = "metadata.name: Required value: name or generateName is required";
                return Err(Refusal::invalid(kind, "", why));
            }
        };
        // The names of roles may hold more.
        if kind.group != "rbac.authorization.k8s.io" && !is_name(&name) {
            let why = format!(
                "metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case \
                 alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
            );
            return Err(Refusal::invalid(kind, &name, &why));
        }
        Ok(name)
    }
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    let object =
        object.as_object_mut().ok_or_else(|| Refusal::bad_request("the body is not a JSON object"))?;
    let meta = object.entry("metadata").or_insert_with(|| json!({}));
    meta.as_object_mut().ok_or_else(|| Refusal::bad_request("metadata is not a JSON object"))
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match (object, value) {
        (Value::Object(object), Some(value)) => drop(object.insert(field.into(), value)),
        (Value::Object(object), None) => drop(object.remove(field)),
        _ => {}
    }
}

fn remove(object: &mut Value, field: &str) {
    set(object, field, None);
}

/// Checks that a body names no other kind or namespace; it may leave them out.
fn check_body(kind: &Kind, namespace: Option<&str>, body: &Value) -> Result<(), Refusal> {
    let is_other = |field: &str, want: &str| body[field].as_str().is_some_and(|said| said != want);
    if is_other("kind", &kind.kind) || is_other("apiVersion", &kind.api_version) {
        let why = format!(
            "the API version in the data ({}, Kind={}) does not match the expected API version ({}, Kind={})",
            body["apiVersion"].as_str().unwrap_or_default(),
            body["kind"].as_str().unwrap_or_default(),
            kind.api_version,
            kind.kind
        );
        return Err(Refusal::bad_request(why));
    }
    let said = body["metadata"]["namespace"].as_str().unwrap_or_default();
    if !said.is_empty() && said != namespace.unwrap_or_default() {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Completes an object like an API server: removes and adds the fields that servers do.
fn complete(kind: &Kind, object: &mut Value) {
    if kind.builtin {
        drop_nulls(object);
    }
    let Some(object) = object.as_object_mut() else { return };
    object.retain(|_, value| !value.is_null());
    object.insert("apiVersion".into(), json!(kind.api_version));
    object.insert("kind".into(), json!(kind.kind));
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
        meta.retain(|_, value| match value {
            Value::Null => false,
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The part of an object that counts for its generation.
fn asked_for<'o>(kind: &Kind, object: &'o Value) -> Vec<(&'o String, &'o Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "metadata" && !(kind.has_status && *name == "status")).collect()
}
