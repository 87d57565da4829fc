//! SQLite's files on the test's [disks](crate::disk): the VFS, which is this process's default.
//!
//! Time, randomness and sleep come from the previous default VFS.

use crate::disk::{Disk, Region, Said, disk_of};
use rusqlite::ffi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::path::Path;
use std::sync::{Arc, Once};

/// SQLite's part of an open file. SQLite allocates it, and knows only its head.
#[repr(C)]
struct OpenFile {
    head: ffi::sqlite3_file,
    body: *mut Body,
}

/// Our part of an open file.
struct Body {
    disk: Arc<Disk>,
    file: u64,
    who: u64,
    /// Memory to which SQLite has pointers.
    shared: Vec<Region>,
}

/// Files whose folder SQLite's own VFS syncs with them.
const JOURNALS: c_int = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL;

fn code(said: Said) -> c_int {
    said.err().unwrap_or(ffi::SQLITE_OK)
}

fn size(n: impl TryInto<usize>) -> usize {
    n.try_into().ok().expect("SQLite counts from 0")
}

/// # Safety
///
/// `file` was opened by [`open`], and not closed since; SQLite makes no other call on it at the same time.
unsafe fn body<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Body {
    // SAFETY: `open` made the body, with `Box::into_raw`, and only `close` frees it; SQLite uses a file from one thread
    // at a time.
    unsafe { &mut *(*file.cast::<OpenFile>()).body }
}

/// # Safety
///
/// `name` is null, or text that ends with a zero and lives as long as the result.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(name.to_str().expect("the test's names are UTF-8")))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let file = file.cast::<OpenFile>();
    // SAFETY: SQLite gives us `szOsFile` bytes; without methods it does not close what was not opened.
    unsafe { (*file).head.pMethods = std::ptr::null() };
    // SAFETY: SQLite's names are null or end with a zero.
    let path = unsafe { path(name) };
    let opened = || -> Said<Body> {
        let (disk, name) = match path {
            Some(path) => disk_of(path).map(|(disk, name)| (disk, Some(name)))?,
            None => (Arc::default(), None), // a temporary file
        };
        let make = path.is_none() || flags & ffi::SQLITE_OPEN_CREATE != 0;
        let (file, who) = disk.open(name, make, flags & JOURNALS != 0)?;
        Ok(Body { disk, file, who, shared: Vec::new() })
    };
    match opened() {
        Err(code) => code,
        Ok(body) => {
            // SAFETY: as above; `out_flags` is null or has room for a number.
            unsafe {
                (*file).body = Box::into_raw(Box::new(body));
                (*file).head.pMethods = &METHODS;
                if !out_flags.is_null() {
                    *out_flags = flags;
                }
            }
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: SQLite's names are null or end with a zero.
    let Some(path) = (unsafe { path(name) }) else { return ffi::SQLITE_IOERR_DELETE };
    code(disk_of(path).and_then(|(disk, name)| disk.delete(name, sync_dir != 0)))
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's names are null or end with a zero.
    let Some(path) = (unsafe { path(name) }) else { return ffi::SQLITE_IOERR_ACCESS };
    let exists = disk_of(path).and_then(|(disk, name)| disk.exists(name));
    // SAFETY: `out` has room for a number.
    code(exists.map(|exists| unsafe { *out = c_int::from(exists) }))
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a name that ends with a zero, and `room` bytes for the result.
    unsafe {
        let len = CStr::from_ptr(name).count_bytes() + 1;
        if len > size(room) {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(name, out, len);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made it so, and SQLite closes a file once.
    let body = unsafe { Box::from_raw((*file.cast::<OpenFile>()).body) };
    body.disk.close(body.file, body.who);
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: an open file, and `len` bytes to be written.
    let (body, into) = unsafe { (body(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), size(len))) };
    // SQLite's buffer may hold anything; what is not read is 0 by its rules
    into.fill(0);
    match body.disk.read(body.file, size(at), into) {
        Ok(read) if read < into.len() => ffi::SQLITE_IOERR_SHORT_READ,
        said => code(said.map(drop)),
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: an open file, and `len` bytes to be read.
    let (body, from) = unsafe { (body(file), std::slice::from_raw_parts(from.cast::<u8>(), size(len))) };
    code(body.disk.write(body.file, body.who, size(at), from))
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    code(body.disk.truncate(body.file, body.who, size(len)))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    code(body.disk.sync(body.file, body.who))
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    let len = body.disk.len(body.file);
    // SAFETY: `out` has room for a number.
    code(len.map(|len| unsafe { *out = i64::try_from(len).unwrap() }))
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    code(body.disk.lock(body.file, body.who, level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    code(body.disk.unlock(body.file, body.who, level))
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    let is_reserved = body.disk.is_reserved(body.file);
    // SAFETY: `out` has room for a number.
    code(is_reserved.map(|is| unsafe { *out = c_int::from(is) }))
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    512
}

/// Reports that a write does not harm adjacent bytes, as SQLite's own VFS does for all disks.
unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    len: c_int,
    make: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: an open file; `out` has room for a pointer.
    let (body, out) = unsafe { (body(file), &mut *out) };
    *out = std::ptr::null_mut();
    match body.disk.shm_map(body.file, body.who, size(region), size(len), make != 0) {
        Err(code) => code,
        Ok(mapped) => {
            if let Some(mapped) = mapped {
                // it may be written through, for it is made of atomics; it lives until the file is unmapped
                *out = mapped.as_ptr().cast_mut().cast();
                body.shared.push(mapped);
            }
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, from: c_int, n: c_int, flags: c_int) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    let mask = ((1_u32 << n) - 1) << from;
    let (takes, alone) = (flags & ffi::SQLITE_SHM_LOCK != 0, flags & ffi::SQLITE_SHM_EXCLUSIVE != 0);
    code(body.disk.shm_lock(body.file, body.who, mask, takes, alone))
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file.
    let body = unsafe { body(file) };
    body.shared.clear();
    body.disk.shm_unmap(body.file, body.who);
    ffi::SQLITE_OK
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Puts SQLite's files on the test's disks from now on.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default VFS lives as long as the process, and so does its copy; the functions that the copy has
        // of it use nothing of it but what was copied.
        unsafe {
            let default = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!default.is_null());
            let ours = Box::leak(Box::new(*default));
            ours.iVersion = 2;
            ours.szOsFile = c_int::try_from(size_of::<OpenFile>()).unwrap();
            ours.pNext = std::ptr::null_mut();
            ours.zName = c"power".as_ptr();
            ours.xOpen = Some(open);
            ours.xDelete = Some(delete);
            ours.xAccess = Some(access);
            ours.xFullPathname = Some(full_pathname);
            assert_eq!(ffi::sqlite3_vfs_register(ours, 1), ffi::SQLITE_OK);
        }
    });
}
