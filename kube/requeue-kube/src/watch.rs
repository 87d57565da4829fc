//! Watches: turns events into triggers.
//!
//! A watch that breaks begins anew with a list. A list shows the current state, not the changes, so both
//! watches here remember what they knew: a list triggers what differs, and what went meanwhile.

use crate::echo::{Version, asks_for_more};
use crate::feed::{Feed, Trigger};
use crate::lists::{List, Lists};
use crate::patience::SharedBackoff;
use crate::{Cause, ObjectKey, Reconcilable};
use futures::{FutureExt, Stream, StreamExt};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::watcher::{self, Event};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

/// Callback for errors in the watch of a kind.
pub(crate) type OnError = Arc<dyn Fn(&Arc<str>, watcher::Error) + Send + Sync>;

/// State that a source of triggers gets when the controller starts.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) feed: Feed,
    pub(crate) lists: Arc<Lists>,
    pub(crate) on_error: OnError,
    /// How long a watch that failed waits, if a user said so.
    pub(crate) backoff: Option<SharedBackoff>,
}

impl Start {
    /// Registers the list of a watch of ours. Runs wait for the lists of all watches, so this is called
    /// before any of them begins.
    pub(crate) fn list_of_objects(&self, kind: &str) -> List {
        self.lists.watch(kind.into(), true)
    }

    /// Like [`list_of_objects`](Self::list_of_objects), for related objects.
    pub(crate) fn list_of_related<O>(&self, relation: &Relation<O>) -> List {
        self.lists.watch(relation.kind.clone(), false)
    }
}

/// How objects of another kind relate to ours.
pub(crate) struct Relation<O> {
    pub(crate) kind: Arc<str>,
    /// They name ours as their owners.
    pub(crate) is_owned: bool,
    /// Function from an object to the keys that it concerns: user code, which may panic.
    pub(crate) of: O,
    /// All of ours.
    pub(crate) all: Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>,
}

impl<O> Relation<O> {
    /// Keys that this object concerns, each once: of two triggers by one event, the second would not be taken
    /// for an echo. If the function panics, it concerns no key.
    fn of<T>(&self, key: &ObjectKey, object: T) -> Vec<ObjectKey>
    where
        O: Fn(T) -> Vec<ObjectKey>,
    {
        let named = std::panic::catch_unwind(AssertUnwindSafe(|| (self.of)(object)));
        let mut named = named.unwrap_or_else(|_| {
            tracing::error!("the mapper of {} {key} panicked", self.kind);
            Vec::new()
        });
        if named.len() > 1 {
            let mut told = HashSet::with_capacity(named.len());
            named.retain(|owner| told.insert(owner.clone()));
        }
        named
    }

    fn tell(&self, feed: &Feed, of: &ObjectKey, whom: &[ObjectKey], version: Option<&Version>, is_new: bool) {
        for owner in whom {
            let cause = Cause::Related { kind: self.kind.clone(), key: of.clone() };
            let trigger = Trigger::new(owner.clone(), cause).by(version.cloned());
            feed.trigger(Trigger { is_new, is_owned: self.is_owned, ..trigger });
        }
    }

    /// Triggers all of our objects, because a list may concern any of them.
    fn sweep(&self, feed: &Feed) {
        for key in (self.all)() {
            feed.trigger(Trigger::new(key, Cause::Swept { kind: self.kind.clone() }));
        }
    }
}

/// The cause of a run for an object that changed from `old` to `new`. `None` if it is the same version.
fn difference(old: Option<&ObjectMeta>, new: &ObjectMeta) -> Option<Cause> {
    match old {
        None => Some(Cause::Changed),
        Some(old) if old.uid == new.uid && old.resource_version == new.resource_version => None,
        Some(old) if asks_for_more(old, new) => Some(Cause::Changed),
        Some(_) => Some(Cause::StatusChanged),
    }
}

/// Keeps the store equal to the API server's objects, and triggers those that change.
pub(crate) async fn objects<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    mut store: Writer<K>,
    dyntype: K::DynamicType,
    mut list: List,
    start: Start,
) where
    K: Reconcilable,
{
    let Start { feed, on_error, .. } = start;
    let kind: Arc<str> = K::kind(&dyntype).into();
    let mut is_first = true;
    let reader = store.as_reader();
    let keeps = feed.managed_fields();
    let known = |key: &ObjectKey| reader.get(&key.to_ref(dyntype.clone()));
    let mut events = pin!(events);
    // The objects of the current list so far, and those of them that differ from the store. The store takes a
    // list over when it is complete, and a run that is triggered earlier would not see it.
    let (mut listed, mut differs) = (HashSet::new(), Vec::new());
    while let Some(event) = events.next().await {
        list.hears(&event);
        let mut event = match event {
            Ok(event) => event,
            Err(e) => {
                on_error(&kind, e);
                continue;
            }
        };
        if let (Event::Apply(object) | Event::InitApply(object), false) = (&mut event, keeps) {
            object.meta_mut().managed_fields = None;
        }
        match &event {
            Event::Apply(object) => {
                let key = ObjectKey::from_obj(object);
                let cause = difference(known(&key).as_deref().map(Resource::meta), object.meta());
                let version = Version::of(object.meta());
                store.apply_watcher_event(&event);
                if let Some(cause) = cause {
                    feed.trigger(Trigger::new(key, cause).by(version));
                }
            }
            Event::Delete(object) => {
                let key = ObjectKey::from_obj(object);
                store.apply_watcher_event(&event);
                feed.gone(&key);
            }
            Event::Init => {
                listed.clear();
                differs.clear();
                store.apply_watcher_event(&event);
            }
            Event::InitApply(object) => {
                let key = ObjectKey::from_obj(object);
                if let Some(cause) = difference(known(&key).as_deref().map(Resource::meta), object.meta()) {
                    differs.push((key.clone(), cause));
                }
                listed.insert(key);
                store.apply_watcher_event(&event);
            }
            Event::InitDone => {
                let keys = |object: &Arc<K>| ObjectKey::from_obj(&**object);
                let gone: Vec<_> =
                    reader.state().iter().map(keys).filter(|key| !listed.contains(key)).collect();
                store.apply_watcher_event(&event);
                for (key, cause) in differs.drain(..) {
                    // No version: between two lists other writes may hide behind that of a run.
                    feed.trigger(Trigger::new(key, if is_first { Cause::Listed } else { cause }));
                }
                gone.iter().for_each(|key| feed.gone(key));
                listed = HashSet::new();
                is_first = false;
                list.is_complete();
            }
        }
    }
    if is_first {
        never_listed(&kind);
    }
}

/// Logs that the events of the objects have ended without a list of them.
fn never_listed(kind: &str) {
    tracing::error!("the events of {kind} ended before their first list was complete: nothing runs");
}

/// Triggers the objects of a watch, and a store, that are kept elsewhere. The state of each object is
/// remembered, so that a list that repeats the watch triggers what differs.
pub(crate) async fn touched<K, O>(
    objects: impl Stream<Item = watcher::Result<O>>,
    store: Store<K>,
    dyntype: K::DynamicType,
    list: List,
    start: Start,
) where
    K: Reconcilable,
    O: Borrow<K>,
{
    let Start { feed, on_error, .. } = start;
    let kind: Arc<str> = K::kind(&dyntype).into();
    let mut known: HashMap<ObjectKey, ObjectMeta> = HashMap::new();
    let mut objects = pin!(objects);
    let mut ready = pin!(store.wait_until_ready().fuse());
    let mut is_listed = false;
    loop {
        let object = tokio::select! {
            // The store may be ready already: then what comes is a change.
            biased;
            ready = &mut ready => {
                if ready.is_err() {
                    return never_listed(&kind);
                }
                is_listed = true;
                list.is_complete();
                continue;
            }
            object = objects.next() => object,
        };
        match object {
            Some(Ok(object)) => {
                let object = object.borrow();
                let key = ObjectKey::from_obj(object);
                let meta = ObjectMeta { managed_fields: None, ..object.meta().clone() };
                if let Some(cause) = difference(known.get(&key), &meta) {
                    let version = Version::of(&meta).filter(|_| is_listed);
                    let cause = if is_listed { cause } else { Cause::Listed };
                    feed.trigger(Trigger::new(key.clone(), cause).by(version));
                }
                known.insert(key, meta);
                // Nothing reports which objects are gone.
                if known.len() > 1000 + 2 * store.len() {
                    known.retain(|key, _| store.get(&key.to_ref(dyntype.clone())).is_some());
                }
            }
            Some(Err(e)) => on_error(&kind, e),
            None if is_listed => return,
            // The store may have its list later than the last object.
            None if ready.as_mut().await.is_ok() => {
                list.is_complete();
                return;
            }
            None => return never_listed(&kind),
        }
    }
}

/// Triggers the objects to which others belong. The version and the owners of each related object are
/// remembered, so that a list after a broken watch shows what went meanwhile, and triggers nothing that is
/// unchanged.
pub(crate) async fn related<C, O>(
    events: impl Stream<Item = watcher::Result<Event<C>>>,
    relation: Relation<O>,
    mut list: List,
    start: Start,
) where
    C: Resource + 'static,
    O: Fn(C) -> Vec<ObjectKey>,
{
    let Start { feed, on_error, .. } = start;
    let mut is_first = true;
    let mut known: HashMap<ObjectKey, Known> = HashMap::new();
    let mut listed = HashSet::new();
    let mut events = pin!(events);
    let tell = |key: &ObjectKey, owners: &[ObjectKey]| relation.tell(&feed, key, owners, None, false);
    let tell_of = |key: &ObjectKey, old: Option<&Known>, new: &Known, version: Option<&Version>| {
        if old.is_none_or(|old| !old.is(new)) {
            // To whom it does not belong any more hears of it too.
            let left = old.iter().flat_map(|old| old.owners.iter());
            let left: Vec<_> = left.filter(|owner| !new.owners.contains(owner)).cloned().collect();
            tell(key, &left);
            let is_new = old.is_none_or(|old| !old.is_same_object(new));
            relation.tell(&feed, key, &new.owners, version, is_new);
        }
    };
    while let Some(event) = events.next().await {
        list.hears(&event);
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                on_error(&relation.kind, e);
                continue;
            }
        };
        match event {
            Event::Init => listed.clear(),
            Event::Apply(object) => {
                let key = ObjectKey::from_obj(&object);
                let version = Version::of(object.meta());
                let new = Known { version: version.clone(), owners: relation.of(&key, object).into() };
                tell_of(&key, known.get(&key), &new, version.as_ref());
                known.insert(key, new);
            }
            Event::InitApply(object) => {
                let key = ObjectKey::from_obj(&object);
                let version = Version::of(object.meta());
                let new = Known { version, owners: relation.of(&key, object).into() };
                // Before its first list everything is new. The first list of the objects triggers all of them, or,
                // if they did not wait for this one, its end does.
                if !is_first {
                    tell_of(&key, known.get(&key), &new, None);
                }
                known.insert(key.clone(), new);
                listed.insert(key);
            }
            Event::Delete(object) => {
                let key = ObjectKey::from_obj(&object);
                // A mapper that looks into a store may name others by now than when the object was seen last. Both
                // hear of it.
                let mut of_it = relation.of(&key, object);
                for owner in known.remove(&key).iter().flat_map(|old| old.owners.iter()) {
                    if !of_it.contains(owner) {
                        of_it.push(owner.clone());
                    }
                }
                tell(&key, &of_it);
            }
            Event::InitDone => {
                is_first = false;
                let before = known.len();
                known.retain(|key, old| {
                    let stays = listed.contains(key);
                    if !stays {
                        tell(key, &old.owners);
                    }
                    stays
                });
                listed = HashSet::new();
                // A mapper can't be asked whom it concerns now that an object is gone. Owners are what they were.
                let gone = known.len() < before && !relation.is_owned;
                // Objects that failed because the kind was missing are named by nothing in its list.
                if list.is_complete() || gone {
                    relation.sweep(&feed);
                }
            }
        }
    }
}

/// Triggers the objects that those of a stream concern. The stream shows neither deletions nor the end of a
/// list.
pub(crate) async fn told<C, T>(
    objects: impl Stream<Item = watcher::Result<T>>,
    relation: Relation<impl Fn(T) -> Vec<ObjectKey>>,
    start: Start,
) where
    C: Resource,
    T: Borrow<C>,
{
    let Start { feed, on_error, .. } = start;
    let mut objects = pin!(objects);
    while let Some(object) = objects.next().await {
        match object {
            Ok(object) => {
                let meta = object.borrow().meta();
                let (key, version) = (ObjectKey::of_meta(meta), Version::of(meta));
                let owners = relation.of(&key, object);
                relation.tell(&feed, &key, &owners, version.as_ref(), false);
            }
            Err(e) => on_error(&relation.kind, e),
        }
    }
}

/// Remembered state of a related object.
struct Known {
    version: Option<Version>,
    owners: Box<[ObjectKey]>,
}

impl Known {
    fn is_same_object(&self, other: &Self) -> bool {
        self.version.as_ref().zip(other.version.as_ref()).is_some_and(|(old, new)| old.uid == new.uid)
    }

    /// Whether it is the same version. A mapper may return other objects now, because they have begun to
    /// refer to it since: their own change has triggered them.
    fn is(&self, other: &Self) -> bool {
        self.version.is_some() && self.version == other.version
    }
}
