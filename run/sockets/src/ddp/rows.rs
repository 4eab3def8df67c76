//! A word for each TCP socket of a family of processes, found by the socket's inode, for others to see.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::FromZeros;

/// Rows that a socket's may be among. Where all are others' it takes one of them: nothing hangs on what is shown.
pub(super) const BUCKET_ROWS: usize = 8;
const PAGE_ROWS: usize = 4096 / std::mem::size_of::<Row>();
/// Pages of rows: one for each TCP socket that a process is looked after for.
pub(super) const PAGES: usize = 256;
pub(super) const BUCKETS: u64 = (PAGES * PAGE_ROWS / BUCKET_ROWS) as u64;
pub(super) const BUCKET_OCTETS: usize = BUCKET_ROWS * std::mem::size_of::<Row>();

/// What is shown of a socket.
#[repr(C)]
#[derive(Debug, FromZeros)]
struct Row {
    /// 0 for a row that is nobody's.
    inode: AtomicU64,
    word: AtomicU32,
    padding: u32,
}

/// A page of rows.
#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
pub(super) struct Rows([Row; PAGE_ROWS]);

/// Where the rows of the socket with this inode begin, as the number of a row.
fn first_row(inode: u64) -> usize {
    (inode % BUCKETS) as usize * BUCKET_ROWS
}

/// Shows `word` of the socket with this inode. `again`: where something is shown already, too.
pub(super) fn show(pages: &[Rows], inode: u64, word: u32, again: bool) {
    let first = first_row(inode);
    let page = &pages[first / PAGE_ROWS].0;
    let bucket = &page[first % PAGE_ROWS..][..BUCKET_ROWS];
    let of = |inode| {
        let mut rows = bucket.iter();
        rows.find(move |row| row.inode.load(Ordering::Relaxed) == inode)
    };
    if let Some(row) = of(inode) {
        if again {
            row.word.store(word, Ordering::Release);
        }
        return;
    }
    let another = (inode / BUCKETS) as usize % BUCKET_ROWS;
    let row = of(0).unwrap_or(&bucket[another]);
    row.word.store(word, Ordering::Relaxed);
    row.inode.store(inode, Ordering::Release);
}

/// Where the rows that the socket with this inode may have begin: an octet of all pages.
pub(super) fn bucket_at(inode: u64) -> usize {
    first_row(inode) * std::mem::size_of::<Row>()
}

/// The word of the socket with this inode, among these rows of its.
pub(super) fn word_among(bucket: &[u8; BUCKET_OCTETS], inode: u64) -> Option<u32> {
    let (rows, _) = bucket.as_chunks::<{ std::mem::size_of::<Row>() }>();
    let has_inode = |row: &&[u8; _]| number::<8>(*row, offset_of!(Row, inode)) == inode;
    let row = rows.iter().find(has_inode)?;
    Some(number::<4>(row, offset_of!(Row, word)) as u32)
}

/// The number of `N` octets, 8 at most, in the order of this machine, at this octet.
pub(super) fn number<const N: usize>(octets: &[u8], at: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(&octets[at..at + N]);
    u64::from_le_bytes(whole)
}
