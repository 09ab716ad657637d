//! Whether what was written to the journal is still in it, and the database as long as it was.
//!
//! SQLite knows where its journal ends from the index beside it and never looks at the file. What is cut off in place
//! keeps its name and its number, the next write goes behind the hole, and the process goes on from what it has in
//! memory, until it ends: then a half is folded into the database. So the end of the journal is read back before a write
//! is acknowledged, each frame once and the last one again. What was read is kept for as long as the journal is, so that a
//! part that is cut off can be written again.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// What the journal begins with.
const HEADER: usize = 32;
/// What stands before each page in it.
const FRAME: usize = 24;
/// The part of the index that is read: its header, the same again, and how much was folded.
const INDEX: usize = 100;
/// So much of a journal is kept in memory, in bytes: several times what it has before it is folded into the database.
const KEPT: usize = 16 << 20;
/// The index of a journal that is written all the time is read so often until it stands still.
const READS: usize = 16;

/// What of the files is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wholeness {
    /// All of it.
    Whole,
    /// Not all of the journal, but all of what is missing is in the database.
    Folded,
    /// Not all of the journal.
    JournalCut,
    /// Not all of the database.
    DatabaseCut,
}

/// The journal and its index, as long as connections are open.
pub(super) struct Journal {
    journal: File,
    // Closing it would take the locks of the connections with it, so they are closed first.
    index: File,
    verified: Verified,
    kept: Option<KeptFrames>,
}

/// What the journal held when it was read back, from its begin on: what is cut off of it can be written again.
struct KeptFrames {
    salt: [u8; 8],
    bytes: Vec<u8>,
}

/// What was read back: how far, and from where on.
struct ReadBack {
    verified: Verified,
    from: u64,
    bytes: Vec<u8>,
}

/// How far the journal was read back: up to the frame before the last one.
#[derive(Clone, Copy)]
struct Verified {
    salt: [u8; 8],
    frames: u32,
    sum: JournalSum,
}

impl Verified {
    /// Fits no journal.
    const NOTHING: Self = Self { salt: [0; 8], frames: u32::MAX, sum: JournalSum(0, 0) };
}

impl Journal {
    pub(super) fn open(journal: &Path, index: &Path) -> io::Result<Self> {
        // For writing too, as the database.
        let open = |path| File::options().read(true).write(true).open(path);
        Ok(Self { journal: open(journal)?, index: open(index)?, verified: Verified::NOTHING, kept: None })
    }

    /// Whether the files are as long as they have to be; others may write meanwhile. `last` is how long the database was.
    pub(super) fn length(&self, database: &File, last: u64) -> io::Result<Wholeness> {
        let Some((index, (journal, database))) =
            self.standing(|_| Ok((self.journal.metadata()?.len(), database.metadata()?.len())))?
        else {
            return Ok(Wholeness::Whole);
        };
        // A journal that is empty from the start does not know.
        let needed = if index.pages == 0 { last } else { u64::from(index.pages) * index.page_len() };
        Ok(if database < needed && (index.is_folded() || database < last) {
            Wholeness::DatabaseCut
        } else if journal >= index.length() {
            Wholeness::Whole
        } else {
            index.cut()
        })
    }

    /// Reads back what was written since the last time. Call it while nobody of us writes.
    pub(super) fn read_back(&mut self) -> io::Result<Wholeness> {
        let Some((index, read)) = self.standing(|index| self.verify(index))? else {
            return Ok(Wholeness::Whole);
        };
        let Some(read) = read else { return Ok(index.cut()) };
        self.keep(&index, read.from, &read.bytes);
        self.verified = read.verified;
        Ok(Wholeness::Whole)
    }

    /// Writes what was cut off again, as far as it was ever read back, and says whether it could. What was written behind
    /// the hole meanwhile is still there. Call it while nobody of us writes.
    pub(super) fn write_again(&self) -> io::Result<bool> {
        let Some((index, ())) = self.standing(|_| Ok(()))? else { return Ok(false) };
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.salt == index.salt) else { return Ok(false) };
        self.journal.write_all_at(&kept.bytes, 0)?;
        self.journal.sync_all()?;
        Ok(true)
    }

    fn keep(&mut self, index: &JournalIndex, from: u64, bytes: &[u8]) {
        let before = self.kept.take().filter(|kept| kept.salt == index.salt);
        let mut all = before.map(|kept| kept.bytes).unwrap_or_default();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        // A journal that was too long once is not kept until it begins anew.
        if index.frames > 0 && from <= all.len() && from.saturating_add(bytes.len()) <= KEPT {
            all.truncate(from);
            all.extend_from_slice(bytes);
            self.kept = Some(KeptFrames { salt: index.salt, bytes: all });
        }
    }

    /// What `look` finds while the index stands still. `None` when somebody writes to it, who then looks himself, or
    /// left it unfinished; SQLite reads the journal again then.
    fn standing<T>(
        &self,
        look: impl Fn(&JournalIndex) -> io::Result<T>,
    ) -> io::Result<Option<(JournalIndex, T)>> {
        for _ in 0..READS {
            let Some(index) = JournalIndex::read(&self.index)? else { return Ok(None) };
            let found = look(&index)?;
            if JournalIndex::read(&self.index)? == Some(index) {
                return Ok(Some((index, found)));
            }
        }
        Ok(None)
    }

    /// How far the journal is verified now, or `None` when it is not what the index says.
    fn verify(&self, index: &JournalIndex) -> io::Result<Option<ReadBack>> {
        if index.frames == 0 {
            return Ok(Some(ReadBack { verified: Verified::NOTHING, from: 0, bytes: Vec::new() }));
        }
        let known = self.verified;
        let goes_on = known.salt == index.salt && known.frames < index.frames;
        let (begun, mut bytes) = if goes_on {
            (known, Vec::new())
        } else {
            let Some(begun) = self.begin(index)? else { return Ok(None) };
            begun
        };
        let from = if goes_on { index.place(known.frames) } else { 0 };
        let Verified { frames, mut sum, .. } = begun;
        let mut frame = vec![0; FRAME + index.page];
        let mut before = sum;
        for number in frames..index.frames {
            if !read(&self.journal, &mut frame, index.place(number))? || frame[8..16] != index.salt {
                return Ok(None);
            }
            before = sum;
            sum = sum.with(&frame[..8], index.is_big_endian).with(&frame[FRAME..], index.is_big_endian);
            // A longer one is not kept, so that it is read frame by frame.
            if bytes.len() <= KEPT {
                bytes.extend_from_slice(&frame);
            }
        }
        let verified = Verified { salt: index.salt, frames: index.frames - 1, sum: before };
        Ok((sum == index.sum).then_some(ReadBack { verified, from, bytes }))
    }

    /// The begin of the journal, when it is that of the index.
    fn begin(&self, index: &JournalIndex) -> io::Result<Option<(Verified, Vec<u8>)>> {
        let mut header = vec![0; HEADER];
        let is_there = read(&self.journal, &mut header, 0)? && header[16..24] == index.salt;
        let sum = JournalSum::default().with(&header[..24], index.is_big_endian);
        Ok(is_there.then_some((Verified { salt: index.salt, frames: 0, sum }, header)))
    }
}

/// Reads all of `buffer`, unless the file ends before that.
fn read(file: &File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the index says of the journal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct JournalIndex {
    changes: u32,
    is_big_endian: bool,
    page: usize,
    /// Frames that count.
    frames: u32,
    /// Pages of the database, those included that are only in the journal.
    pages: u32,
    sum: JournalSum,
    salt: [u8; 8],
    /// Frames that are in the database as well.
    folded: u32,
}

impl JournalIndex {
    /// `None` when it is being written, or was left like that.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; INDEX];
        file.read_exact_at(&mut bytes, 0)?;
        let number = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..48] != bytes[48..96] || bytes[12] == 0 {
            return Ok(None);
        }
        let page = usize::from(u16::from_ne_bytes([bytes[14], bytes[15]]));
        let mut salt = [0; 8];
        salt.copy_from_slice(&bytes[32..40]);
        Ok(Some(Self {
            changes: number(8),
            is_big_endian: bytes[13] != 0,
            // The largest page does not fit into the number.
            page: if page == 1 { 1 << 16 } else { page },
            frames: number(16),
            pages: number(20),
            sum: JournalSum(number(24), number(28)),
            salt,
            folded: number(96),
        }))
    }

    fn page_len(&self) -> u64 {
        self.page as u64
    }

    /// Where the frame with so many before it begins.
    fn place(&self, before: u32) -> u64 {
        HEADER as u64 + u64::from(before) * (FRAME as u64 + self.page_len())
    }

    /// How long the journal has to be.
    fn length(&self) -> u64 {
        if self.frames == 0 { 0 } else { self.place(self.frames) }
    }

    fn is_folded(&self) -> bool {
        self.folded >= self.frames
    }

    /// What it means that the journal is not all there.
    fn cut(&self) -> Wholeness {
        if self.is_folded() { Wholeness::Folded } else { Wholeness::JournalCut }
    }
}

/// The checksum of a journal, which goes on from frame to frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct JournalSum(u32, u32);

impl JournalSum {
    fn with(self, bytes: &[u8], is_big_endian: bool) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        let word = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        pairs.iter().fold(self, |Self(first, second), [one, two]| {
            let first = first.wrapping_add(word(*one)).wrapping_add(second);
            Self(first, second.wrapping_add(word(*two)).wrapping_add(first))
        })
    }
}
