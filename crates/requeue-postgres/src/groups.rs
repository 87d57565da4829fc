//! Groups that take turns (rule B3): settings of builders and clients. The turns themselves are in the
//! schema, at `requeue.claim`.

use crate::link::{Failed, Link};
use requeue_engine::{EngineError, Key};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The name of a key's group, as bytes.
pub(crate) type GroupOf<K> = Arc<dyn Fn(&K) -> Vec<u8> + Send + Sync>;

/// The rules of a queue's groups: how many keys of each may be held at the same time, and how many it gets
/// handed out per turn. They are stored with the queue, for all processes; rules that are not given stay
/// unchanged.
///
/// A queue in memory has [`requeue::GroupRules`], which asks functions for the weight and the cap of a group.
/// A server can't call a process's functions, so groups with rules of their own are listed here.
///
/// ```
/// use requeue_postgres::GroupRules;
/// let rules = GroupRules::new().cap(10).weight(&"gold".to_owned(), 3).cap_of(&"gold".to_owned(), 50);
/// assert_eq!(format!("{rules:?}"), "GroupRules { cap: Some(10), groups: 2 }");
/// ```
#[derive(Clone)]
pub struct GroupRules<G> {
    cap: Option<usize>,
    /// A group may be listed twice, with a weight and with a cap.
    named: Vec<Named>,
    group: PhantomData<fn(G)>,
}

#[derive(Clone)]
struct Named {
    group: Vec<u8>,
    weight: Option<u32>,
    cap: Option<usize>,
}

impl<G: Key> GroupRules<G> {
    /// Every group has the weight 1, and none has a cap, unless others are stored with the queue.
    ///
    /// ```
    /// # use requeue_postgres::GroupRules;
    /// let rules = GroupRules::<String>::new();
    /// # let _ = rules;
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { cap: None, named: Vec::new(), group: PhantomData }
    }

    /// Sets how many keys of this group are handed out per turn: 0 counts as 1.
    ///
    /// ```
    /// # use requeue_postgres::GroupRules;
    /// let rules = GroupRules::new().weight(&"gold".to_owned(), 10);
    /// # let _ = rules;
    /// ```
    #[must_use]
    pub fn weight(mut self, group: &G, keys: u32) -> Self {
        self.named.push(Named { group: group.to_bytes().into(), weight: Some(keys), cap: None });
        self
    }

    /// Sets how many keys of each group may be held at the same time, in all processes together: `usize::MAX`
    /// is no cap. Keys that a process has claimed for its workers are held, including those that wait in
    /// memory ([`prefetch`]). A queue cannot be opened with a cap of 0: its keys would never be handed out.
    ///
    /// [`prefetch`]: crate::QueueBuilder::prefetch
    ///
    /// ```
    /// # use requeue_postgres::GroupRules;
    /// let rules = GroupRules::<String>::new().cap(2);
    /// # let _ = rules;
    /// ```
    #[must_use]
    pub fn cap(self, most: usize) -> Self {
        Self { cap: Some(most), ..self }
    }

    /// Sets the cap of this group, which overrides [`cap`](Self::cap): 0 counts as 1.
    ///
    /// ```
    /// # use requeue_postgres::GroupRules;
    /// let rules = GroupRules::new().cap(2).cap_of(&"gold".to_owned(), usize::MAX);
    /// # let _ = rules;
    /// ```
    #[must_use]
    pub fn cap_of(mut self, group: &G, most: usize) -> Self {
        self.named.push(Named { group: group.to_bytes().into(), weight: None, cap: Some(most) });
        self
    }

    pub(crate) fn stored(self) -> Result<Rules, EngineError> {
        let Self { cap, named, .. } = self;
        if cap == Some(0) {
            return Err(EngineError::NotApplied(
                "a cap of 0 for groups: none of their keys would run".into(),
            ));
        }
        Ok(Rules { cap, named })
    }
}

impl<G: Key> Default for GroupRules<G> {
    /// Like [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

impl<G> fmt::Debug for GroupRules<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupRules").field("cap", &self.cap).field("groups", &self.named.len()).finish()
    }
}

/// Rules in the server's form.
pub(crate) struct Rules {
    cap: Option<usize>,
    named: Vec<Named>,
}

/// Converts to the server's numbers; its maximum stands for all larger ones, which no process reaches.
fn number(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl Rules {
    /// Stores them with the queue of this number.
    pub(crate) async fn store(&self, link: &mut Link, queue: i32) -> Result<(), Failed> {
        let cap = self.cap.map(number);
        let names: Vec<&[u8]> = self.named.iter().map(|it| &*it.group).collect();
        let weights: Vec<Option<i32>> =
            self.named.iter().map(|it| it.weight.map(|keys| number(keys.max(1) as usize))).collect();
        let caps: Vec<Option<i32>> =
            self.named.iter().map(|it| it.cap.map(|most| number(most.max(1)))).collect();
        let store = "select requeue.group_rules($1, $2, $3, $4, $5)";
        link.query(store, &[&queue, &cap, &names, &weights, &caps]).await.map(drop)
    }
}
