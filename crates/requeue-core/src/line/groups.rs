//! The groups of keys (rule B3): the user's functions, and the numbers of groups that have known keys.

use super::rate::Rate;
use crate::arena::Arena;
use crate::table::Table;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::hash::{BuildHasher, Hash};

/// Number of levels, or groups, that a page looks at.
pub(super) const PAGE: u32 = 256;

/// Numbers of keys of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupGauges {
    /// Its name.
    pub name: Arc<str>,
    /// Its ready keys.
    pub ready: usize,
    /// Its held keys.
    pub held: usize,
}

/// A function of a group, if there is one.
type Of<G, R> = Option<Arc<dyn Fn(&G) -> R + Send + Sync>>;

/// Rules for the groups of a queue: their weights, caps on held keys, rates, and names in metrics. Each rule
/// is called for a group when its first key becomes known, also after its last key had gone, and when the
/// rules are read again.
///
/// They run under the queue's lock: they must be short and must not call the queue. If one panics, the
/// trigger that brought the group is not accepted.
pub struct GroupRules<G> {
    weight: Of<G, u32>,
    cap: Of<G, usize>,
    metrics: Of<G, Option<String>>,
    no_room: bool,
    rate: Of<G, Option<Rate>>,
    /// Keys a second and burst that are no rate.
    no_rate: Option<(f64, u32)>,
}

impl<G> GroupRules<G> {
    /// Every group has the weight 1, and none has a cap.
    #[must_use]
    pub fn new() -> Self {
        Self { weight: None, cap: None, metrics: None, no_room: false, rate: None, no_rate: None }
    }

    /// Sets how many keys of a group are handed out in one of its turns. 0 counts as 1.
    #[must_use]
    pub fn weight(self, weight: impl Fn(&G) -> u32 + Send + Sync + 'static) -> Self {
        Self { weight: Some(Arc::new(weight)), ..self }
    }

    /// Sets how many keys of each group may be held at the same time. A queue cannot be built with a cap of
    /// 0, because no key would be handed out.
    #[must_use]
    pub fn cap(self, most: usize) -> Self {
        Self { no_room: most == 0, ..self.cap_of(move |_| most) }
    }

    /// Sets a [cap](Self::cap) for each group. 0 counts as 1, and `usize::MAX` is no cap.
    #[must_use]
    pub fn cap_of(self, most: impl Fn(&G) -> usize + Send + Sync + 'static) -> Self {
        Self { cap: Some(Arc::new(most)), no_room: false, ..self }
    }

    /// Sets the names of groups in metrics, which then report how many keys of a named group are ready and
    /// held. Each name is a further time series that stays: name only the groups that somebody watches, and
    /// return `None` for the others. Groups with the same name are counted together.
    #[must_use]
    pub fn metrics(self, name: impl Fn(&G) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { metrics: Some(Arc::new(name)), ..self }
    }

    /// Limits the keys of each group that are handed out to this many a second, with `burst` at once, as the rate of a queue
    /// limits all of them together.
    ///
    /// A token of the group is charged when a key of it is handed out: a trigger that coalesces costs nothing. A group without
    /// a token is passed by, at no cost to the others; when its next token is due it comes behind those that wait. In any time
    /// `t` a group has at most `burst + t * per_second` keys handed out, also if its keys go and come: a group whose last key
    /// has gone is remembered until its bucket is full, so at most as many groups as had a key handed out in the last `burst /
    /// per_second` seconds.
    #[must_use]
    pub fn rate(self, per_second: f64, burst: u32) -> Self {
        let rate = Rate::per_second(per_second, burst);
        let no_rate = if rate.is_none() { Some((per_second, burst)) } else { None };
        Self { no_rate, ..self.rate_of(move |_| rate) }
    }

    /// Sets a [rate](Self::rate) for each group; `None` is no limit.
    #[must_use]
    pub fn rate_of(self, rate: impl Fn(&G) -> Option<Rate> + Send + Sync + 'static) -> Self {
        Self { rate: Some(Arc::new(rate)), no_rate: None, ..self }
    }

    /// The arguments of [`rate`](Self::rate), if they are no rate.
    #[must_use]
    pub fn no_rate(&self) -> Option<(f64, u32)> {
        self.no_rate
    }

    /// Calls the rules for one group.
    fn of(&self, name: &G) -> Ruled {
        let cap = self.cap.as_ref().map_or(usize::MAX, |cap| cap(name).max(1));
        Ruled {
            weight: self.weight.as_ref().map_or(1, |weight| weight(name).max(1)),
            cap: u32::try_from(cap).unwrap_or(u32::MAX),
            shown: self.metrics.as_ref().and_then(|metrics| metrics(name)).map(Arc::from),
            rate: self.rate.as_ref().and_then(|rate| rate(name)),
        }
    }

    /// Whether [`cap`](Self::cap) was 0.
    #[must_use]
    pub fn has_no_room(&self) -> bool {
        self.no_room
    }
}

impl<G> Default for GroupRules<G> {
    /// [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

impl<G> Clone for GroupRules<G> {
    fn clone(&self) -> Self {
        let Self { weight, cap, metrics, rate, no_room, no_rate } = self;
        let (weight, cap, metrics, rate) = (weight.clone(), cap.clone(), metrics.clone(), rate.clone());
        Self { weight, cap, metrics, rate, no_room: *no_room, no_rate: *no_rate }
    }
}

impl<G> fmt::Debug for GroupRules<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupRules")
            .field("weight", &self.weight.is_some())
            .field("cap", &self.cap.is_some())
            .field("metrics", &self.metrics.is_some())
            .field("rate", &self.rate.is_some())
            .finish()
    }
}

/// The function that returns the group of a key, with the rules for groups.
pub struct Groups<K: ?Sized> {
    pub(super) naming: Box<dyn Naming<K>>,
}

impl<K: ?Sized> Groups<K> {
    /// Groups of keys for which `of` returns the same.
    pub fn by<G, S>(of: impl Fn(&K) -> G + Send + 'static, rules: GroupRules<G>, hasher: S) -> Self
    where
        G: Hash + Eq + Send + Sync + 'static,
        S: BuildHasher + Send + 'static,
    {
        let last = Ruled { weight: 1, cap: 1, shown: None, rate: None };
        let (table, names) = (Table::new(), Arena::new(usize::MAX));
        Self { naming: Box::new(Names { of, rules, hasher, table, names, last }) }
    }
}

impl<K: ?Sized> fmt::Debug for Groups<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Groups(..)")
    }
}

/// The number of a key's group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) number: u32,
    /// The group was not known.
    pub(super) new: bool,
}

/// Rules of one group.
#[derive(Clone, Debug)]
pub(super) struct Ruled {
    /// `weight` and `cap` are at least 1.
    pub(super) weight: u32,
    pub(super) cap: u32,
    /// Its name in metrics.
    pub(super) shown: Option<Arc<str>>,
    /// The rate at which its keys are handed out. `None` is no limit.
    pub(super) rate: Option<Rate>,
}

/// The groups of a queue.
pub(super) trait Naming<K: ?Sized>: Send {
    /// The number of the key's group. Calls user code. If it panics, nothing has changed.
    fn name(&mut self, key: &K) -> Named;
    /// [`name`](Self::name) of a known group. Calls user code, and changes nothing.
    fn find(&self, key: &K) -> Option<u32>;
    /// Rules of the last group that was new.
    fn rules_of_the_last(&mut self) -> Ruled;
    /// The rules of a group, read again, if it is known. Calls user code, and changes nothing.
    fn rules_of(&self, number: u32) -> Option<Ruled>;
    /// Whether they have a rate.
    fn is_rated(&self) -> bool;
    /// Whether metrics call some of them by a name.
    fn is_shown(&self) -> bool;
    /// All numbers are below this.
    fn numbers(&self) -> u32;
    /// Forgets a group. `freed` is called with a chunk of numbers that has no group any more. The group is
    /// dropped last, which is user code.
    fn forget(&mut self, number: u32, freed: &mut dyn FnMut(u32));
}

/// The groups by the values that user code returns. Their numbers are the slots of an arena, so that numbers
/// stay low while there are few groups.
struct Names<F, G, S> {
    of: F,
    rules: GroupRules<G>,
    hasher: S,
    table: Table,
    names: Arena<G>,
    /// Rules of the last group that was new.
    last: Ruled,
}

impl<F, G: Hash + Eq, S: BuildHasher> Names<F, G, S> {
    fn hash(&self, name: &G) -> u32 {
        let hash = self.hasher.hash_one(name);
        // both halves, for hashers that are weak in one
        (hash ^ (hash >> 32)) as u32
    }

    #[inline]
    fn find_named(&self, hash: u32, name: &G) -> Option<u32> {
        self.table.find(hash, |number| self.names.matches(number, hash, |known| known == name))
    }

    fn enter(&mut self, name: G, hash: u32) -> Named {
        let ruled = self.rules.of(&name);
        let number = self.names.insert(name, hash, 0);
        self.table.enter(hash, number, &self.names);
        self.last = ruled;
        Named { number, new: true }
    }
}

impl<K, F, G, S> Naming<K> for Names<F, G, S>
where
    K: ?Sized,
    F: Fn(&K) -> G + Send,
    G: Hash + Eq + Send + Sync,
    S: BuildHasher + Send,
{
    fn name(&mut self, key: &K) -> Named {
        let name = (self.of)(key);
        let hash = self.hash(&name);
        match self.find_named(hash, &name) {
            Some(number) => Named { number, new: false },
            None => self.enter(name, hash),
        }
    }

    fn find(&self, key: &K) -> Option<u32> {
        let name = (self.of)(key);
        self.find_named(self.hash(&name), &name)
    }

    fn rules_of_the_last(&mut self) -> Ruled {
        let shown = self.last.shown.take();
        Ruled { shown, ..self.last }
    }

    fn rules_of(&self, number: u32) -> Option<Ruled> {
        self.names.flags_if_occupied(number)?;
        Some(self.rules.of(self.names.key(number)))
    }

    fn is_rated(&self) -> bool {
        self.rules.rate.is_some()
    }

    fn is_shown(&self) -> bool {
        self.rules.metrics.is_some()
    }

    fn numbers(&self) -> u32 {
        self.names.slots()
    }

    fn forget(&mut self, number: u32, freed: &mut dyn FnMut(u32)) {
        let Some(removed) = self.names.remove(number) else { return };
        self.table.remove(removed.hash, number, &self.names);
        if let Some(chunk) = removed.freed_chunk {
            freed(chunk);
        }
    }
}
