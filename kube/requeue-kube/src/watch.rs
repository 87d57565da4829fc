//! From the events of watches to triggers.
//!
//! A watch that breaks begins anew with a list. A list says how everything is, not what has changed, so both
//! watches here remember what they knew: a list triggers what differs from that, and what went meanwhile.

use crate::echo::{Version, asks_for_more};
use crate::feed::{Feed, Trigger};
use crate::{Cause, ObjectKey};
use futures::{FutureExt, Stream, StreamExt};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::watcher::{self, Event};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Hears of what goes wrong in a watch.
pub(crate) type OnError = Arc<dyn Fn(watcher::Error) + Send + Sync>;

/// Goes when a watch has had its first list.
pub(crate) type Unsynced = mpsc::Sender<()>;

/// Why an object is to be reconciled that was known as `old` and is now `new`. `None` if it is the same version.
fn difference(old: Option<&ObjectMeta>, new: &ObjectMeta) -> Option<Cause> {
    match old {
        None => Some(Cause::Changed),
        Some(old) if old.uid == new.uid && old.resource_version == new.resource_version => None,
        Some(old) if asks_for_more(old, new) => Some(Cause::Changed),
        Some(_) => Some(Cause::StatusChanged),
    }
}

/// Keeps the store as the API server has the objects, and triggers what changes.
pub(crate) async fn objects<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    mut store: Writer<K>,
    dyntype: K::DynamicType,
    feed: Feed,
    unsynced: Unsynced,
    on_error: OnError,
) where
    K: Resource<DynamicType: Hash + Eq + Clone> + Clone + 'static,
{
    let reader = store.as_reader();
    let keeps = feed.managed_fields();
    let known = |key: &ObjectKey| reader.get(&key.to_ref(dyntype.clone()));
    let mut events = pin!(events);
    let mut unsynced = Some(unsynced);
    // What the list that goes on has had, and what of it differs from the store. The store takes a list over
    // when it is complete, and a run that is triggered earlier would not see it.
    let (mut listed, mut differs) = (HashSet::new(), Vec::new());
    while let Some(event) = events.next().await {
        let mut event = match event {
            Ok(event) => event,
            Err(e) => {
                on_error(e);
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
                let first = unsynced.take().is_some();
                for (key, cause) in differs.drain(..) {
                    // No version: between two lists other writes may hide behind that of a run.
                    feed.trigger(Trigger::new(key, if first { Cause::Listed } else { cause }));
                }
                gone.iter().for_each(|key| feed.gone(key));
                listed = HashSet::new();
            }
        }
    }
    never_listed(unsynced, &K::kind(&dyntype)).await;
}

/// The stream of events has ended. If its first list was not complete, nothing may ever run.
async fn never_listed(unsynced: Option<Unsynced>, kind: &str) {
    if unsynced.is_some() {
        tracing::error!("the events of {kind} ended before their first list was complete: nothing runs");
        std::future::pending::<()>().await;
    }
}

/// Triggers the objects that somebody else's watch tells of, who also keeps the store. Of each object is remembered
/// how it was, so that a list which repeats the watch triggers what differs.
pub(crate) async fn touched<K>(
    objects: impl Stream<Item = watcher::Result<K>>,
    store: Store<K>,
    dyntype: K::DynamicType,
    feed: Feed,
    unsynced: Unsynced,
    on_error: OnError,
) where
    K: Resource<DynamicType: Hash + Eq + Clone> + Clone + 'static,
{
    let mut known: HashMap<ObjectKey, ObjectMeta> = HashMap::new();
    let mut objects = pin!(objects);
    let mut ready = pin!(store.wait_until_ready().fuse());
    let mut unsynced = Some(unsynced);
    loop {
        let object = tokio::select! {
            // The store may be ready already: then what comes is a change.
            biased;
            listed = &mut ready => {
                if listed.is_err() {
                    break;
                }
                unsynced = None;
                continue;
            }
            object = objects.next() => object,
        };
        match object {
            Some(Ok(object)) => {
                let key = ObjectKey::from_obj(&object);
                let meta = ObjectMeta { managed_fields: None, ..object.meta().clone() };
                if let Some(cause) = difference(known.get(&key), &meta) {
                    let listed = unsynced.is_some();
                    let version = Version::of(&meta).filter(|_| !listed);
                    let cause = if listed { Cause::Listed } else { cause };
                    feed.trigger(Trigger::new(key.clone(), cause).by(version));
                }
                known.insert(key, meta);
                // Nobody says what is gone.
                if known.len() > 1000 + 2 * store.len() {
                    known.retain(|key, _| store.get(&key.to_ref(dyntype.clone())).is_some());
                }
            }
            Some(Err(e)) => on_error(e),
            // The store may have its list later than the last object.
            None if unsynced.is_some() && ready.as_mut().await.is_ok() => return,
            None => break,
        }
    }
    never_listed(unsynced, &K::kind(&dyntype)).await;
}

/// Triggers the objects to which others belong. Of each related object its version is remembered and to whom it
/// belongs, so that a list after a broken watch tells what went meanwhile, and nothing that is as it was.
pub(crate) async fn related<C>(
    events: impl Stream<Item = watcher::Result<Event<C>>>,
    kind: Arc<str>,
    owners: impl Fn(C) -> Vec<ObjectKey>,
    feed: Feed,
    unsynced: Unsynced,
    on_error: OnError,
) where
    C: Resource + 'static,
{
    // A mapper is users' code. One that panics triggers nothing for this version of this object.
    let owners = |object: C| {
        let key = ObjectKey::from_obj(&object);
        let mut all = std::panic::catch_unwind(AssertUnwindSafe(|| owners(object))).unwrap_or_else(|_| {
            tracing::error!("the function that says whom {kind} {key} triggers panicked");
            Vec::new()
        });
        // One event is one trigger: of two the second would not be taken for the echo that both are.
        if all.len() > 1 {
            let mut told = HashSet::with_capacity(all.len());
            all.retain(|owner| told.insert(owner.clone()));
        }
        all
    };
    let mut known: HashMap<ObjectKey, Known> = HashMap::new();
    let mut listed = HashSet::new();
    let mut unsynced = Some(unsynced);
    let mut events = pin!(events);
    let tell_by = |key: &ObjectKey, owners: &[ObjectKey], version: Option<&Version>, is_new: bool| {
        for owner in owners {
            let cause = Cause::Related { kind: kind.clone(), key: key.clone() };
            feed.trigger(Trigger { is_new, ..Trigger::new(owner.clone(), cause).by(version.cloned()) });
        }
    };
    let tell = |key: &ObjectKey, owners: &[ObjectKey]| tell_by(key, owners, None, false);
    let tell_of = |key: &ObjectKey, old: Option<&Known>, new: &Known, version: Option<&Version>| {
        if old.is_none_or(|old| !old.is(new)) {
            // To whom it does not belong any more hears of it too.
            let left = old.iter().flat_map(|old| old.owners.iter());
            let left: Vec<_> = left.filter(|owner| !new.owners.contains(owner)).cloned().collect();
            tell(key, &left);
            tell_by(key, &new.owners, version, old.is_none_or(|old| !old.is_same_object(new)));
        }
    };
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                on_error(e);
                continue;
            }
        };
        match event {
            Event::Init => listed.clear(),
            Event::Apply(object) => {
                let key = ObjectKey::from_obj(&object);
                let version = Version::of(object.meta());
                let new = Known { version: version.clone(), owners: owners(object).into() };
                tell_of(&key, known.get(&key), &new, version.as_ref());
                known.insert(key, new);
            }
            Event::InitApply(object) => {
                let key = ObjectKey::from_obj(&object);
                let new = Known { version: Version::of(object.meta()), owners: owners(object).into() };
                // Before its first list everything is new, and the first list of the objects triggers all of them.
                if unsynced.is_none() {
                    tell_of(&key, known.get(&key), &new, None);
                }
                known.insert(key.clone(), new);
                listed.insert(key);
            }
            Event::Delete(object) => {
                let key = ObjectKey::from_obj(&object);
                // A mapper that looks into a store may name others by now than when the object was seen last. Both
                // hear of it.
                let mut of_it = owners(object);
                for owner in known.remove(&key).iter().flat_map(|old| old.owners.iter()) {
                    if !of_it.contains(owner) {
                        of_it.push(owner.clone());
                    }
                }
                tell(&key, &of_it);
            }
            Event::InitDone => {
                unsynced = None;
                known.retain(|key, old| {
                    let stays = listed.contains(key);
                    if !stays {
                        tell(key, &old.owners);
                    }
                    stays
                });
                listed = HashSet::new();
            }
        }
    }
    never_listed(unsynced, &kind).await;
}

/// What is remembered of a related object.
struct Known {
    version: Option<Version>,
    owners: Box<[ObjectKey]>,
}

impl Known {
    fn is_same_object(&self, other: &Self) -> bool {
        self.version.as_ref().zip(other.version.as_ref()).is_some_and(|(old, new)| old.uid == new.uid)
    }

    fn is(&self, other: &Self) -> bool {
        self.version.is_some() && self.version == other.version && self.owners == other.owners
    }
}
