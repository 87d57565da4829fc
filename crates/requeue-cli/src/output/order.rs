//! `--keep-order`: the output of runs comes out in the order in which their keys were read.
//!
//! A trigger creates a place at the end, unless its key is already owed a run with a place. A run takes its
//! key's place, and keeps it over all its attempts. The output of an attempt is kept at its end, and the
//! place is closed when the key is done or gives up. The first place is passed on once it is closed, by the
//! worker that closed it; all others keep their output. So no run waits for another one's output.
//!
//! All kept output is in one file, which is in memory while it is short. A place has only its offsets.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tempfile::SpooledTempFile;

use crate::input::keys::Key;
use crate::output::console::{Console, Meanwhile, Stream};
use crate::output::group::{IN_MEMORY, Kept, Spool};

/// The order of places, and what they keep.
#[derive(Debug)]
pub(crate) struct Order(Mutex<Places>);

#[derive(Debug)]
struct Places {
    /// By number: the open places, and those that wait for their turn.
    places: BTreeMap<u64, Place>,
    /// The open places of each key.
    open: HashMap<Key, Open>,
    /// The next number.
    next: u64,
    file: SpooledTempFile,
    /// Length of the file.
    length: u64,
    /// Number of its bytes still to be passed on.
    owed: u64,
    /// A worker is passing output on.
    passing: bool,
    /// The outputs of which something was lost.
    lost: [bool; 2],
}

#[derive(Debug, Default)]
struct Place {
    closed: bool,
    pieces: Vec<Piece>,
}

/// The place of one attempt's output on one stream.
#[derive(Clone, Copy, Debug)]
struct Piece {
    stream: Stream,
    offset: u64,
    length: u64,
}

#[derive(Debug, Default)]
struct Open {
    /// The place of the current run, or of the one that waits for a retry.
    now: Option<u64>,
    /// The place of the run that is owed.
    owed: Option<u64>,
}

/// A caller with nothing to look after, which records losses.
struct Notes([bool; 2]);

impl Meanwhile for Notes {
    fn until(&self) -> Option<Instant> {
        None
    }
    fn look(&mut self) {}
    fn loses(&mut self, stream: Stream) {
        self.0[stream as usize] = true;
    }
    fn has_lost(&self, stream: Stream) -> bool {
        self.0[stream as usize]
    }
}

/// A piece being read, while others write to the file.
struct Reading<'a> {
    order: &'a Order,
    piece: Piece,
    failed: bool,
}

impl Read for Reading<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(usize::try_from(self.piece.length).unwrap_or(usize::MAX));
        let read = self.order.places().read(self.piece.offset, &mut into[..most]);
        // A file that can't be read is no fault of the output.
        let read = read.unwrap_or(0);
        self.failed |= read == 0 && most > 0;
        self.piece.offset += read as u64;
        self.piece.length -= read as u64;
        Ok(read)
    }
}

impl Order {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Places {
            places: BTreeMap::new(),
            open: HashMap::new(),
            next: 0,
            file: SpooledTempFile::new(IN_MEMORY),
            length: 0,
            owed: 0,
            passing: false,
            lost: [false; 2],
        }))
    }

    /// Prepares for a key that is about to be added.
    pub(crate) fn comes(&self, key: &[u8]) {
        let mut places = self.places();
        if places.open.get(key).is_some_and(|open| open.owed.is_some()) {
            return;
        }
        let number = places.make();
        places.open.entry(key.to_vec()).or_default().owed = Some(number);
    }

    /// Begins a run of this key, which serves an owed one too. A trigger at the same moment whose run comes
    /// later gets its place when that begins.
    pub(crate) fn begins(&self, key: &[u8]) {
        let mut places = self.places();
        let Open { now, owed } = places.open.remove(key).unwrap_or_default();
        let number = match now.or(owed) {
            Some(number) => number,
            None => places.make(),
        };
        places.close(owed.filter(|owed| *owed != number));
        places.open.insert(key.to_vec(), Open { now: Some(number), owed: None });
    }

    /// Keeps the output of an attempt. If there is no room for it (a full disk) it is passed on at once, with
    /// a message.
    pub(crate) fn keep(&self, key: &[u8], kept: Kept, console: &Console, meanwhile: &mut dyn Meanwhile) {
        let mut refused = None;
        let mut places = self.places();
        let number = places.open.get(key).and_then(|open| open.now);
        let unkept = kept.into_outputs().map(|(stream, mut spool)| {
            let kept = places.append(number, stream, &mut spool).map_err(|e| refused = Some(e));
            kept.is_err().then_some((stream, spool))
        });
        drop(places);
        if let Some(e) = refused {
            let line = format!("requeue: --keep-order: {e}: the output of this run is not in its order");
            console.line_while(&line, meanwhile);
        }
        for (stream, spool) in unkept.into_iter().flatten() {
            spool.pour(stream, console, meanwhile);
        }
    }

    /// Closes the place of a key that is done or gave up, and passes on output at the front.
    pub(crate) fn ends(&self, key: &[u8], console: &Console) {
        let mut places = self.places();
        let now = places.open.get_mut(key).and_then(|open| open.now.take());
        places.close(now);
        places.tidy(key);
        drop(places);
        self.pass_on(console);
    }

    /// Removes a key with nothing to run for.
    pub(crate) fn forgets(&self, key: &[u8], console: &Console) {
        self.begins(key);
        self.ends(key, console);
    }

    /// Passes on all remaining output after the last run. Returns whether some kept output was lost.
    pub(crate) fn finish(&self, console: &Console) -> bool {
        let mut places = self.places();
        places.open.clear();
        for place in places.places.values_mut() {
            place.closed = true;
        }
        drop(places);
        self.pass_on(console);
        self.places().lost.contains(&true)
    }

    /// Passes on closed places at the front. A worker that is already doing it continues to the end.
    fn pass_on(&self, console: &Console) {
        let mut places = self.places();
        if places.passing {
            return;
        }
        while let Some(place) = places.take_first() {
            places.passing = true;
            let mut notes = Notes(places.lost);
            drop(places);
            let whole: u64 = place.pieces.iter().map(|piece| piece.length).sum();
            console.in_turn(&mut notes, |meanwhile| {
                for piece in place.pieces {
                    let mut reading = Reading { order: self, piece, failed: false };
                    console.pour(piece.stream, &mut BufReader::new(&mut reading), meanwhile);
                    if reading.failed {
                        meanwhile.loses(piece.stream);
                    }
                }
            });
            places = self.places();
            places.lost = notes.0;
            places.passed(whole);
        }
        places.passing = false;
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// Creates a place at the end.
    fn make(&mut self) -> u64 {
        self.next += 1;
        self.places.insert(self.next, Place::default());
        self.next
    }

    fn close(&mut self, number: Option<u64>) {
        if let Some(place) = number.and_then(|number| self.places.get_mut(&number)) {
            place.closed = true;
        }
    }

    /// Removes a key without a place.
    fn tidy(&mut self, key: &[u8]) {
        if self.open.get(key).is_some_and(|open| open.now.is_none() && open.owed.is_none()) {
            self.open.remove(key);
        }
    }

    fn take_first(&mut self) -> Option<Place> {
        let first = self.places.first_entry()?;
        first.get().closed.then(|| first.remove())
    }

    fn append(&mut self, number: Option<u64>, stream: Stream, spool: &mut Spool) -> io::Result<()> {
        let (offset, length) = (self.length, spool.length());
        if length == 0 {
            return Ok(());
        }
        let place = number.and_then(|number| self.places.get_mut(&number));
        let place = place.ok_or_else(|| io::Error::other("it has no place"))?;
        self.file.seek(SeekFrom::Start(offset))?;
        io::copy(&mut spool.read()?, &mut self.file)?;
        self.length += length;
        self.owed += length;
        place.pieces.push(Piece { stream, offset, length });
        Ok(())
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read(into)
    }

    /// Records output that was passed on. A file with nothing left starts anew.
    fn passed(&mut self, length: u64) {
        self.owed -= length;
        if self.owed == 0 && self.length > 0 {
            self.file = SpooledTempFile::new(IN_MEMORY);
            self.length = 0;
        }
    }
}
