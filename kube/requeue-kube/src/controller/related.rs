//! Related objects, and other sources of triggers.

use super::{Controller, in_turns};
use crate::feed::Trigger;
use crate::patience::patiently;
use crate::watch::{self, Relation, Start};
use crate::{Cause, ObjectKey, Reconcilable};
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Api, ObjectMeta};
use kube::core::{ClusterResourceScope, DynamicResourceScope, PartialObjectMeta};
#[expect(
    deprecated,
    reason = "its successor takes another `Api`, and `owns` takes the one that kube's takes"
)]
use kube::runtime::metadata_watcher;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

impl<K: Reconcilable> Controller<K> {
    /// Watches objects that name one of ours as an owner; their changes trigger the owner. Only their
    /// metadata is watched, and only version and owners are kept.
    ///
    /// An owner is in the child's namespace or in none. It is identified by group and kind, whatever the
    /// version in the reference. The reconciler makes the reference ([`Resource::controller_owner_ref`]).
    /// Deleting a child runs its owner, which makes it again.
    ///
    /// A child ends no back-off of its owner: see [`Config::on_owned`](crate::Config::on_owned).
    pub fn owns<C>(self, api: Api<C>, wc: watcher::Config) -> Self
    where
        C: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        self.owns_with(api, (), wc)
    }

    /// Like [`owns`](Self::owns), for a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "kube's signature")]
    pub fn owns_with<C>(self, api: Api<C>, dyntype: C::DynamicType, wc: watcher::Config) -> Self
    where
        C: Resource<DynamicType: Debug + Eq + Hash + Clone>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        #[expect(deprecated, reason = "see its `use`")]
        let events = move || metadata_watcher(api.clone(), wc.clone());
        let owners = self.owners();
        let relation =
            self.relation::<C, _>(&dyntype, true, move |child: PartialObjectMeta<C>| owners(child.meta()));
        self.source(move |start| {
            let list = start.list_of_related(&relation);
            watch::related(patiently(events, start.backoff.clone()), relation, list, start).boxed()
        })
    }

    /// Like [`owns`](Self::owns), for children from a stream, which may be filtered, or shared by several
    /// controllers.
    ///
    /// Each item triggers its owners. The stream shows neither the end of a list nor deletions, so runs do
    /// not wait for it, and a deleted child triggers nothing unless the stream has it as an item
    /// ([`touched_objects`](kube::runtime::WatchStreamExt::touched_objects)).
    pub fn owns_stream<C>(self, trigger: impl Stream<Item = watcher::Result<C>> + Send + 'static) -> Self
    where
        C: Resource<DynamicType = ()> + Send + 'static,
    {
        self.owns_stream_with(trigger, ())
    }

    /// Like [`owns_stream`](Self::owns_stream), for a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "kube's signature")]
    pub fn owns_stream_with<C>(
        self,
        trigger: impl Stream<Item = watcher::Result<C>> + Send + 'static,
        dyntype: C::DynamicType,
    ) -> Self
    where
        C: Resource + Send + 'static,
    {
        let owners = self.owners();
        let relation = self.relation::<C, _>(&dyntype, true, move |child: C| owners(child.meta()));
        self.source(move |start| watch::told::<C, _>(in_turns(trigger), relation, start).boxed())
    }

    /// Like [`owns_stream`](Self::owns_stream), for a stream of a subscriber of kube's shared stores
    /// (`reflector::store_shared`, in kube's feature `unstable-runtime`). The program polls the stream of the
    /// store's writer.
    pub fn owns_shared_stream<C>(self, trigger: impl Stream<Item = Arc<C>> + Send + 'static) -> Self
    where
        C: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        self.owns_shared_stream_with(trigger, ())
    }

    /// Like [`owns_shared_stream`](Self::owns_shared_stream), for a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "kube's signature")]
    pub fn owns_shared_stream_with<C>(
        self,
        trigger: impl Stream<Item = Arc<C>> + Send + 'static,
        dyntype: C::DynamicType,
    ) -> Self
    where
        C: Resource + Send + Sync + 'static,
    {
        let owners = self.owners();
        let relation = self.relation::<C, _>(&dyntype, true, move |child: Arc<C>| owners(child.meta()));
        self.source(move |start| watch::told::<C, _>(polled(trigger).map(Ok), relation, start).boxed())
    }

    /// Watches objects of another kind. A function returns which of ours each of them triggers when it is
    /// created, changed or deleted. The trigger ends a back-off, so that an object that failed for lack of a
    /// Secret runs when the Secret appears: see [`Config::on_watched`](crate::Config::on_watched).
    ///
    /// The function gets each version of each object once, in the task of its watch. It must be quick, and
    /// may look into [`store`](Self::store) for our objects. Only the version of a watched object and the
    /// function's answer are kept. An object of ours that begins to refer to another one is triggered by its
    /// own change and reads it.
    ///
    /// No event reports an object that went while the watch was broken; only the next list shows it. The
    /// function can't be asked then whom it concerns now, so **all** objects run, behind those that change
    /// ([`Cause::Swept`]). All objects also run when a kind gets its list later than
    /// [`Config::list_timeout`](crate::Config::list_timeout).
    ///
    /// ```no_run
    /// use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
    /// use kube::{Api, runtime::reflector::ObjectRef, runtime::watcher};
    /// use requeue_kube::Controller;
    ///
    /// # fn doc(client: kube::Client) {
    /// let apps = Controller::new(Api::<Deployment>::all(client.clone()), watcher::Config::default());
    /// let all = apps.store();
    /// // all Deployments of the namespace in which a Secret changes
    /// let of = move |secret: Secret| {
    ///     let apps = all.state().into_iter().map(|app| ObjectRef::from_obj(&*app));
    ///     apps.filter(move |app| app.namespace == secret.metadata.namespace)
    /// };
    /// let apps = apps.watches(Api::<Secret>::all(client), watcher::Config::default(), of);
    /// # }
    /// ```
    pub fn watches<C, I>(
        self,
        api: Api<C>,
        wc: watcher::Config,
        mapper: impl Fn(C) -> I + Send + Sync + 'static,
    ) -> Self
    where
        C: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.watches_with(api, (), wc, mapper)
    }

    /// Like [`watches`](Self::watches), for a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "kube's signature")]
    pub fn watches_with<C, I>(
        self,
        api: Api<C>,
        dyntype: C::DynamicType,
        wc: watcher::Config,
        mapper: impl Fn(C) -> I + Send + Sync + 'static,
    ) -> Self
    where
        C: Resource<DynamicType: Debug + Eq + Hash + Clone>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let events = move || watcher(api.clone(), wc.clone());
        let relation = self.relation::<C, _>(&dyntype, false, move |object| keys(mapper(object)));
        self.source(move |start| {
            let list = start.list_of_related(&relation);
            watch::related(patiently(events, start.backoff.clone()), relation, list, start).boxed()
        })
    }

    /// Like [`watches`](Self::watches), for objects from a stream, which may be filtered, or shared by
    /// several controllers.
    ///
    /// Each item triggers the objects that the function returns. The stream shows neither the end of a list
    /// nor deletions, so runs do not wait for it, and there are no sweeps.
    pub fn watches_stream<C, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<C>> + Send + 'static,
        mapper: impl Fn(C) -> I + Send + Sync + 'static,
    ) -> Self
    where
        C: Resource<DynamicType: Default> + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.watches_stream_with(trigger, mapper, C::DynamicType::default())
    }

    /// Like [`watches_stream`](Self::watches_stream), for a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "kube's signature")]
    pub fn watches_stream_with<C, I>(
        self,
        trigger: impl Stream<Item = watcher::Result<C>> + Send + 'static,
        mapper: impl Fn(C) -> I + Send + Sync + 'static,
        dyntype: C::DynamicType,
    ) -> Self
    where
        C: Resource + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let relation = self.relation::<C, _>(&dyntype, false, move |object| keys(mapper(object)));
        self.source(move |start| watch::told::<C, _>(in_turns(trigger), relation, start).boxed())
    }

    /// Like [`watches_stream`](Self::watches_stream), for a stream of a subscriber of kube's shared stores
    /// (`reflector::store_shared`, in kube's feature `unstable-runtime`). The program polls the stream of the
    /// store's writer.
    ///
    /// ```
    /// # use futures::stream::Stream;
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
    /// # use kube::runtime::reflector::ObjectRef;
    /// # use requeue_kube::Controller;
    /// # use std::sync::Arc;
    /// // let (secrets, writer) = kube::runtime::reflector::store_shared(256);
    /// // let told = writer.subscribe().expect("a shared store");
    /// # fn doc(apps: Controller<Deployment>, told: impl Stream<Item = Arc<Secret>> + Send + 'static) {
    /// let apps = apps.watches_shared_stream(told, |secret: Arc<Secret>| {
    ///     secret.metadata.name.as_deref().map(|name| ObjectRef::new(name).within("default"))
    /// });
    /// # }
    /// ```
    pub fn watches_shared_stream<C, I>(
        self,
        trigger: impl Stream<Item = Arc<C>> + Send + 'static,
        mapper: impl Fn(Arc<C>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        C: Resource<DynamicType: Default> + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.watches_shared_stream_with(trigger, mapper, C::DynamicType::default())
    }

    /// Like [`watches_shared_stream`](Self::watches_shared_stream), for a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "kube's signature")]
    pub fn watches_shared_stream_with<C, I>(
        self,
        trigger: impl Stream<Item = Arc<C>> + Send + 'static,
        mapper: impl Fn(Arc<C>) -> I + Send + Sync + 'static,
        dyntype: C::DynamicType,
    ) -> Self
    where
        C: Resource + Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let relation = self.relation::<C, _>(&dyntype, false, move |object| keys(mapper(object)));
        self.source(move |start| watch::told::<C, _>(polled(trigger).map(Ok), relation, start).boxed())
    }

    /// Triggers an object for each item of the stream.
    pub fn reconcile_on(self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        self.source(move |Start { feed, .. }| {
            let trigger = in_turns(trigger).for_each(move |object| {
                feed.trigger(Trigger::new(ObjectKey::of(&object), Cause::Asked));
                std::future::ready(())
            });
            trigger.boxed()
        })
    }

    /// Triggers all objects for each item of the stream.
    pub fn reconcile_all_on(self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let store = self.store();
        self.source(move |Start { feed, .. }| {
            let trigger = in_turns(trigger).for_each(move |()| {
                for key in all_of(&store) {
                    feed.trigger(Trigger::new(key, Cause::Asked));
                }
                std::future::ready(())
            });
            trigger.boxed()
        })
    }

    fn relation<C, O>(&self, dyntype: &C::DynamicType, is_owned: bool, of: O) -> Relation<O>
    where
        C: Resource,
    {
        let store = self.store();
        Relation { kind: C::kind(dyntype).into(), is_owned, of, all: Box::new(move || all_of(&store)) }
    }

    /// Keys of the owners that an object names. They are identified by group and kind; the version in a
    /// reference is that of the program that wrote it.
    fn owners(&self) -> impl Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + 'static {
        let (store, of) = (self.store(), self.dyntype.clone());
        move |meta| {
            let is_ours = |owner: &&OwnerReference| {
                group_of(&owner.api_version) == K::group(&of) && owner.kind == K::kind(&of)
            };
            let owners = meta.owner_references.iter().flatten().filter(is_ours);
            owners.map(|owner| owner_key(&store, &of, meta.namespace.as_deref(), &owner.name)).collect()
        }
    }
}

/// Polls a subscriber of kube's shared store every second too, because it forgets to ask to be woken if an
/// object has gone by the time its event is read.
pub(super) fn polled<T: Send + 'static>(
    trigger: impl Stream<Item = T> + Send + 'static,
) -> impl Stream<Item = T> + Send + 'static {
    let trigger = Box::pin(in_turns(trigger));
    futures::stream::unfold(trigger, |mut trigger| async move {
        loop {
            tokio::select! {
                biased;
                item = trigger.next() => return Some((item?, trigger)),
                () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
            }
        }
    })
}

fn keys<K: Resource>(objects: impl IntoIterator<Item = ObjectRef<K>>) -> Vec<ObjectKey> {
    objects.into_iter().map(|object| ObjectKey::of(&object)).collect()
}

fn all_of<K: Reconcilable>(store: &Store<K>) -> Vec<ObjectKey> {
    store.state().iter().map(|object| ObjectKey::from_obj(&**object)).collect()
}

/// The group of an `apiVersion`: the part before the slash; empty for Kubernetes' first kinds.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The key of an owner. An owner reference has no namespace: the owner is in the child's, or in none. A
/// static type says which; for a kind known only at run time the store is asked for either.
fn owner_key<K>(store: &Store<K>, of: &K::DynamicType, namespace: Option<&str>, name: &str) -> ObjectKey
where
    K: Reconcilable,
{
    let scope = TypeId::of::<K::Scope>();
    if scope == TypeId::of::<ClusterResourceScope>() {
        return ObjectKey::new(None, name);
    }
    let key = ObjectKey::new(namespace, name);
    if scope == TypeId::of::<DynamicResourceScope>()
        && let Some(owner) = store.get(&key.to_ref(of.clone()))
    {
        return ObjectKey::from_obj(&*owner);
    }
    key
}
