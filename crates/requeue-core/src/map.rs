//! A map without long stops: the state machine's table over entries of its own, for the limiters' records of
//! keys.

use crate::prefetch::prefetch;
use crate::shrink;
use crate::slots::Slots;
use crate::table::Table;
use alloc::vec::Vec;

/// Entries in a chunk.
const CHUNK: usize = 256;

/// A map from keys to records. It grows and shrinks in small steps, like the queue.
///
/// The entries are numbered from 0 without a gap: a new one comes last, and the last one takes the place of
/// one that is removed. Made for `requeue`, and not part of this crate's promises.
#[derive(Debug)]
pub struct Map<K, R> {
    table: Table,
    entries: Entries<K, R>,
}

#[derive(Debug)]
struct Entry<K, R> {
    hash: u32,
    key: K,
    record: R,
}

/// Entries in the order of their coming, so that a new one is in the cache already, and in chunks, so that
/// they never move in one piece.
#[derive(Debug)]
struct Entries<K, R> {
    /// All but the last are full, and none is empty.
    chunks: Vec<Vec<Entry<K, R>>>,
    len: usize,
}

impl<K, R> Entries<K, R> {
    #[inline]
    fn get(&self, at: u32) -> &Entry<K, R> {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    #[inline]
    fn get_mut(&mut self, at: u32) -> &mut Entry<K, R> {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    #[inline]
    fn push(&mut self, entry: Entry<K, R>) -> u32 {
        let at = u32::try_from(self.len).expect("a limiter remembers at most 2^32 keys");
        if self.len % CHUNK == 0 {
            self.chunks.push(Vec::with_capacity(if self.len == 0 { 4 } else { CHUNK }));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(entry);
        }
        self.len += 1;
        at
    }

    /// Removes an entry; the last one moves to its place.
    fn swap_remove(&mut self, at: u32) -> Option<Entry<K, R>> {
        let chunk = self.chunks.last_mut()?;
        let last = chunk.pop()?;
        if chunk.is_empty() {
            self.chunks.pop();
            shrink::shrink(&mut self.chunks);
        }
        self.len -= 1;
        if at as usize == self.len { Some(last) } else { Some(core::mem::replace(self.get_mut(at), last)) }
    }
}

impl<K, R> Slots for Entries<K, R> {
    #[inline]
    fn hash(&self, at: u32) -> u32 {
        self.get(at).hash
    }

    #[inline]
    fn prefetch(&self, at: u32) {
        prefetch(core::ptr::from_ref(self.get(at)) as usize);
    }
}

impl<K, R> Default for Map<K, R> {
    fn default() -> Self {
        Self { table: Table::new(), entries: Entries { chunks: Vec::new(), len: 0 } }
    }
}

impl<K, R> Map<K, R> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the entry of `key`.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u32, key: &K) -> Option<u32>
    where
        K: Eq,
    {
        self.table.find(hash, |at| {
            let entry = self.entries.get(at);
            entry.hash == hash && entry.key == *key
        })
    }

    /// The record of an entry.
    #[inline]
    pub fn record(&mut self, at: u32) -> &mut R {
        &mut self.entries.get_mut(at).record
    }

    /// Enters a key that is not in the map. Equal keys have equal hashes.
    #[inline]
    pub fn insert(&mut self, hash: u32, key: K, record: R) -> u32 {
        let at = self.entries.push(Entry { hash, key, record });
        self.enter(hash, at);
        at
    }

    /// Removes an entry; the last one gets its number.
    pub fn remove(&mut self, at: u32) -> Option<(K, R)> {
        let last = self.entries.len.checked_sub(1)? as u32;
        self.leave(at);
        if at != last {
            self.leave(last);
        }
        let Entry { key, record, .. } = self.entries.swap_remove(at)?;
        if at != last {
            self.enter(self.entries.hash(at), at);
        }
        Some((key, record))
    }

    /// Enters a number into the table.
    #[inline]
    fn enter(&mut self, hash: u32, at: u32) {
        self.table.enter(hash, at, &self.entries);
    }

    /// Removes a number from the table.
    fn leave(&mut self, at: u32) {
        self.table.remove(self.entries.hash(at), at, &self.entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash that spreads neighbours.
    fn mix(key: u32) -> u32 {
        key.wrapping_mul(0x9e37_79b9)
    }

    fn filled(keys: u32) -> Map<u32, u32> {
        let mut map = Map::default();
        for key in 0..keys {
            assert_eq!(map.find(mix(key), &key), None);
            assert_eq!(map.insert(mix(key), key, key + 1), key, "a new one comes last");
        }
        map
    }

    #[test]
    fn every_key_is_found_with_its_record_until_it_is_removed() {
        let n = if cfg!(miri) { 2_000 } else { 50_000 };
        let mut map = filled(n);
        for key in (0..n).filter(|key| key % 3 > 0).chain((0..n).filter(|key| key % 3 == 0)) {
            let at = map.find(mix(key), &key).expect("it is there");
            assert_eq!(*map.record(at), key + 1);
            let last = map.entries.get(map.len() as u32 - 1).key;
            assert_eq!(map.remove(at), Some((key, key + 1)));
            assert_eq!(map.find(mix(key), &key), None);
            if last != key {
                assert_eq!(map.find(mix(last), &last), Some(at), "the last one took its place");
            }
        }
        assert!(map.is_empty());
        assert_eq!(map.remove(0), None);
    }

    #[test]
    fn keys_of_one_hash_are_kept_apart() {
        let mut map = Map::default();
        let at = [7, 8].map(|key| map.insert(1, key, ()));
        assert!(!map.is_empty());
        assert_eq!([7, 8, 9].map(|key| map.find(1, &key)), [Some(at[0]), Some(at[1]), None]);
    }

    #[test]
    fn entries_stay_where_they_are_while_others_come() {
        let mut map = filled(CHUNK as u32);
        let at = |map: &Map<u32, u32>| core::ptr::from_ref(map.entries.get(7)) as usize;
        let before = at(&map);
        for key in 0..20_000 {
            map.insert(mix(CHUNK as u32 + key), CHUNK as u32 + key, 0);
        }
        assert_eq!(at(&map), before);
    }

    #[test]
    fn memory_follows_the_number_of_entries() {
        let mut map = filled(100_000);
        let chunks = |map: &Map<u32, u32>| (map.entries.chunks.len(), map.entries.chunks.capacity());
        let (most, room) = chunks(&map);
        assert_eq!(most, 100_000usize.div_ceil(CHUNK));
        for key in 0..50_000 {
            let at = map.find(mix(key), &key).expect("it is there");
            map.remove(at);
        }
        assert_eq!(
            chunks(&map),
            (50_000usize.div_ceil(CHUNK), room),
            "half as many may soon be as many again"
        );
        while map.remove(0).is_some() {}
        let (left, room) = chunks(&map);
        assert!(left == 0 && room <= 64, "{left} chunks, room for {room}");
    }
}
