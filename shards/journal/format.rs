//! How do segments, batches and records lie on the disk?
//!
//! All numbers are little-endian. A segment is a file; it begins with its header, twice, each in a block of its own, so that one bad
//! block does not make all of it unreadable:
//!
//! | bytes of a segment | |
//! |---|---|
//! | 0..64, and again 4096..4160 | segment header |
//! | from 8192, each on a fresh block, one behind the other | batches |
//!
//! | segment header | | batch header | | record header | |
//! |---|---|---|---|---|---|
//! | 0..8 | `corelane` | 0..4 | checksum | 0..4 | checksum |
//! | 8..12 | version | 4..8 | `CLbt` | 4..8 | length, this header included |
//! | 12..14 | shard | 8..16 | number of the batch | 8..12 | length of the metadata |
//! | 14..16 | shards | 16..20 | length, this header included | 12 | kind |
//! | 16..20 | layout | 20..24 | records | from 13 | metadata (rkyv), payload |
//! | 20..24 | number of the segment | | | | |
//! | 24..28 | size in bytes | | | | |
//! | 32..40 | epoch | | | | |
//! | 40..48 | number of its first batch | | | | |
//! | 60..64 | checksum | | | | |
//!
//! Batch numbers have no gaps within one journal. Checksums are CRC-32C over everything else of a header, or of a record; those of
//! batches and records are combined with the segment's epoch and their position in it. So neither what a recycled file held
//! before, nor what a client put into a payload, is ever taken for a batch.

use crate::buffer::Buffer;
use crate::limits::{BLOCK, Identity, VERSION};
use crate::record::{Metadata, Position, Record, decode};
use std::ops::Range;

pub(crate) const SEGMENT_HEADER: usize = 64;
pub(crate) const SECOND_COPY: usize = BLOCK;
/// Where the first batch begins.
pub(crate) const SEGMENT_START: usize = 2 * BLOCK;
pub(crate) const BATCH_HEADER: usize = 24;
pub(crate) const RECORD_HEADER: usize = 13;

const SEGMENT_MAGIC: [u8; 8] = *b"corelane";
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"CLbt");

/// What a segment begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: Identity,
    pub(crate) segment: u32,
    pub(crate) size: u32,
    pub(crate) epoch: u64,
    pub(crate) first_batch: u64,
}

/// What the first blocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstBlocks {
    /// Nothing that was written here, or not all of it.
    Nothing,
    /// A header of a version that is not known.
    Version(u32),
    Header(SegmentHeader),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) number: u64,
    pub(crate) length: u32,
    pub(crate) count: u32,
}

impl SegmentHeader {
    /// Writes both copies into blocks of zeros.
    pub(crate) fn write(&self, blocks: &mut [u8]) {
        let header = &mut blocks[..SEGMENT_HEADER];
        header[..8].copy_from_slice(&SEGMENT_MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..14].copy_from_slice(&self.identity.shard.to_le_bytes());
        header[14..16].copy_from_slice(&self.identity.shards.to_le_bytes());
        header[16..20].copy_from_slice(&self.identity.layout.to_le_bytes());
        header[20..24].copy_from_slice(&self.segment.to_le_bytes());
        header[24..28].copy_from_slice(&self.size.to_le_bytes());
        header[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        header[40..48].copy_from_slice(&self.first_batch.to_le_bytes());
        let checksum = crc_fast::crc32_iscsi(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_le_bytes());
        blocks.copy_within(..SEGMENT_HEADER, SECOND_COPY);
    }

    /// The header of `segment` in its first blocks. A valid copy that is of another segment is what the file was before.
    pub(crate) fn read(blocks: &[u8], segment: u32) -> FirstBlocks {
        for copy in [0, SECOND_COPY] {
            match Self::read_copy(&blocks[copy..copy + SEGMENT_HEADER]) {
                FirstBlocks::Header(header) if header.segment != segment => {}
                FirstBlocks::Nothing => {}
                found @ (FirstBlocks::Header(_) | FirstBlocks::Version(_)) => return found,
            }
        }
        FirstBlocks::Nothing
    }

    fn read_copy(header: &[u8]) -> FirstBlocks {
        // The magic and the checksum stand where they are in every version, so that an unknown one can be told.
        if header[..8] != SEGMENT_MAGIC || u32_at(header, 60) != crc_fast::crc32_iscsi(&header[..60]) {
            return FirstBlocks::Nothing;
        }
        let version = u32_at(header, 8);
        if version != VERSION {
            return FirstBlocks::Version(version);
        }
        FirstBlocks::Header(SegmentHeader {
            identity: Identity {
                layout: u32_at(header, 16),
                shard: u16_at(header, 12),
                shards: u16_at(header, 14),
            },
            segment: u32_at(header, 20),
            size: u32_at(header, 24),
            epoch: u64_at(header, 32),
            first_batch: u64_at(header, 40),
        })
    }
}

impl BatchHeader {
    pub(crate) fn write(&self, into: &mut [u8], epoch: u64, offset: u32) {
        into[4..8].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        into[8..16].copy_from_slice(&self.number.to_le_bytes());
        into[16..20].copy_from_slice(&self.length.to_le_bytes());
        into[20..24].copy_from_slice(&self.count.to_le_bytes());
        let checksum = checksum(&into[4..BATCH_HEADER], epoch, offset);
        into[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// What seems to be a header, as far as that can be told without the epoch.
    pub(crate) fn claimed(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..BATCH_HEADER).filter(|header| u32_at(header, 4) == BATCH_MAGIC)?;
        let (number, length, count) = (u64_at(header, 8), u32_at(header, 16), u32_at(header, 20));
        (length as usize >= BATCH_HEADER).then_some(BatchHeader { number, length, count })
    }

    /// The header at `offset` of a segment, of which `bytes` begin there.
    pub(crate) fn read(bytes: &[u8], epoch: u64, offset: u32) -> Option<Self> {
        let claimed = Self::claimed(bytes)?;
        (u32_at(bytes, 0) == checksum(&bytes[4..BATCH_HEADER], epoch, offset)).then_some(claimed)
    }
}

/// Appends a record, its checksum left open: that depends on where it will lie. Answers its length.
pub(crate) fn append<M: Metadata>(into: &mut Buffer, metadata: &M, payload: &[u8]) -> u32 {
    let start = into.len();
    into.extend(&[0; RECORD_HEADER]);
    metadata.archive(into);
    let metadata_length = into.len() - start - RECORD_HEADER;
    into.extend(payload);
    let length = into.len() - start;
    let header = &mut into.as_mut_slice()[start..start + RECORD_HEADER];
    header[4..8].copy_from_slice(&short(length).to_le_bytes());
    header[8..12].copy_from_slice(&short(metadata_length).to_le_bytes());
    header[12] = M::KIND as u8;
    short(length)
}

/// Sets the checksums of the batch's header and of every record, now that it is known where they lie.
pub(crate) fn seal(batch: &mut [u8], header: BatchHeader, epoch: u64, offset: u32) {
    header.write(batch, epoch, offset);
    let mut at = BATCH_HEADER;
    while at < header.length as usize {
        let length = u32_at(batch, at + 4) as usize;
        let checksum = checksum(&batch[at + 4..at + length], epoch, offset + short(at));
        batch[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        at += length;
    }
}

/// Reads the record that `bytes` begin with, at `offset` of a segment, and answers its length too. The length alone: it is damaged,
/// and that is how long it claims to be.
pub(crate) fn read_record(bytes: &[u8], epoch: u64, offset: u32) -> (Option<Record<'_>>, usize) {
    if bytes.len() < RECORD_HEADER {
        return (None, bytes.len());
    }
    let (length, metadata) = (u32_at(bytes, 4) as usize, u32_at(bytes, 8) as usize);
    if length > bytes.len() || length < RECORD_HEADER || metadata > length - RECORD_HEADER {
        return (None, bytes.len());
    }
    if u32_at(bytes, 0) != checksum(&bytes[4..length], epoch, offset) {
        return (None, length);
    }
    let (metadata, payload) = bytes[RECORD_HEADER..length].split_at(metadata);
    (decode(bytes[12], metadata, payload), length)
}

/// Gives `each` what stands in `bytes`, one behind the other, whatever the checksums say. Answers where that ends to make sense.
pub(crate) fn claims(bytes: &[u8], each: &mut impl FnMut(Record<'_>)) -> usize {
    let mut at = 0;
    while bytes.len() - at > RECORD_HEADER {
        let (length, metadata) = (u32_at(bytes, at + 4) as usize, u32_at(bytes, at + 8) as usize);
        if length > bytes.len() - at || length < RECORD_HEADER || metadata > length - RECORD_HEADER {
            break;
        }
        let (metadata, payload) = bytes[at + RECORD_HEADER..at + length].split_at(metadata);
        let Some(record) = decode(bytes[at + 12], metadata, payload) else { break };
        each(record);
        at += length;
    }
    at
}

/// Gives `each` the records of a batch, and answers from where to where they cannot be read. `bytes` is what there is of a batch with a
/// valid header; it may have been cut off.
pub(crate) fn read_batch<'a>(
    bytes: &'a [u8],
    header: BatchHeader,
    segment: u32,
    epoch: u64,
    offset: u32,
    each: &mut impl FnMut(Position, Record<'a>),
) -> Option<Range<u32>> {
    let end = header.length as usize;
    let bytes = &bytes[..end.min(bytes.len())];
    let (mut bad, mut count): (Option<Range<u32>>, u32) = (None, 0);
    let is_bad = |bad: &mut Option<Range<u32>>, range: Range<u32>| {
        let start = bad.as_ref().map_or(range.start, |bad| bad.start);
        *bad = Some(start..range.end);
    };
    let mut at = BATCH_HEADER.min(bytes.len());
    while at < bytes.len() {
        let here = offset + short(at);
        let (record, length) = read_record(&bytes[at..], epoch, here);
        match record {
            Some(record) => {
                count += 1;
                each(Position { segment, offset: here, length: short(length) }, record);
            }
            None => is_bad(&mut bad, here..here + short(length)),
        }
        at += length;
    }
    if bytes.len() < end || (bad.is_none() && count != header.count) {
        is_bad(&mut bad, offset + short(bytes.len())..offset + header.length);
    }
    bad
}

/// What `length` bytes take on the disk.
pub(crate) fn in_blocks(length: usize) -> usize {
    length.next_multiple_of(BLOCK)
}

/// Segments, and so all that is in them, are smaller than 4 GiB.
pub(crate) fn short(length: usize) -> u32 {
    u32::try_from(length).expect("a segment is smaller than 4 GiB")
}

fn checksum(bytes: &[u8], epoch: u64, offset: u32) -> u32 {
    let seed = (epoch ^ u64::from(offset)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    crc_fast::crc32_iscsi(bytes) ^ (seed >> 32) as u32
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
