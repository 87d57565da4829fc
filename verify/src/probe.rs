//! Keys and values that report when they are hashed, compared, merged and dropped, and can do anything at
//! that moment: panic, or call the queue.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Action = Arc<dyn Fn() + Send + Sync>;

/// Something to do at a certain moment, and how often that moment came.
#[derive(Default)]
pub struct Hook {
    action: Mutex<Option<Action>>,
    runs: AtomicUsize,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("runs", &self.runs()).finish_non_exhaustive()
    }
}

impl Hook {
    /// From now on `action` runs at that moment.
    pub fn set(&self, action: impl Fn() + Send + Sync + 'static) {
        *self.action.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(action));
    }

    /// From now on there is a panic at that moment.
    pub fn panics(&self) {
        self.set(|| panic!("{}", POISONED));
    }

    /// From now on nothing happens at that moment.
    pub fn clear(&self) {
        *self.action.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Number of times that moment came.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Runs the hook: counts it, and does its action.
    pub fn run_now(&self) {
        self.runs.fetch_add(1, Ordering::SeqCst);
        // The action runs without the lock, so that it may panic or set another.
        let action = self.action.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(action) = action {
            action();
        }
    }
}

/// Panic message of a poisoned hook.
pub const POISONED: &str = "users' code panics here";

/// Hooks at each moment in the life of a [`Key`] or [`Value`], as user code. They belong to one key or value
/// and its clones, not to equal ones.
#[derive(Default)]
pub struct Probe {
    /// The key is hashed.
    pub hash: Hook,
    /// The key is compared with another.
    pub eq: Hook,
    /// The value is merged, as the newer of two.
    pub merge: Hook,
    /// The key or value is dropped.
    pub drop: Hook,
    /// The key is cloned.
    pub clone: Hook,
}

impl Probe {
    /// A probe whose hooks do nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

/// The key of every queue under test: a number, and perhaps a probe.
pub struct Key {
    /// The part that is hashed and compared.
    pub id: u64,
    probe: Option<Arc<Probe>>,
}

impl Key {
    /// Key `id` with this probe.
    #[must_use]
    pub fn probed(id: u64, probe: &Arc<Probe>) -> Self {
        Self { id, probe: Some(Arc::clone(probe)) }
    }
}

impl From<u64> for Key {
    fn from(id: u64) -> Self {
        Self { id, probe: None }
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        if let Some(probe) = &self.probe {
            probe.clone.run_now();
        }
        Self { id: self.id, probe: self.probe.clone() }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(probe) = &self.probe {
            probe.hash.run_now();
        }
        // the smallest keys collide in pairs
        let hashed = if self.id < 4 { self.id / 2 } else { self.id };
        hashed.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        for probe in [&self.probe, &other.probe].into_iter().flatten() {
            probe.eq.run_now();
        }
        self.id == other.id
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            probe.drop.run_now();
        }
    }
}

/// The value of every queue under test: numbers in the order in which they
/// were merged, and perhaps a probe.
#[derive(Default)]
pub struct Value {
    /// The merged values, older first.
    pub items: Vec<u32>,
    probe: Option<Arc<Probe>>,
}

impl Value {
    /// A value of one number.
    #[must_use]
    pub fn of(item: u32) -> Self {
        Self { items: vec![item], probe: None }
    }

    /// A value of one number with this probe.
    #[must_use]
    pub fn probed(item: u32, probe: &Arc<Probe>) -> Self {
        Self { items: vec![item], probe: Some(Arc::clone(probe)) }
    }

    /// The merge function of every queue under test: the newer value goes to the end. Its hook runs after its
    /// numbers have been taken over.
    #[allow(clippy::needless_pass_by_value, reason = "a merge function takes the newer value")]
    pub fn merge(old: &mut Self, new: Self) {
        old.items.extend(&new.items);
        if let Some(probe) = &new.probe {
            probe.merge.run_now();
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({:?})", self.items)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            probe.drop.run_now();
        }
    }
}
