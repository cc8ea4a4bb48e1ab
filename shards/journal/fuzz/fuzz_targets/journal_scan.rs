//! Is every file answered with records, damage or a refusal, however it is cut into slices?
//!
//! Checksums are made right before a file is scanned, or nothing would get past them: where the input has the mark of a batch, its
//! header and the records that it seems to have are sealed.

#![no_main]

use corelane_journal::{BLOCK, Config, Feed, Identity, Position, Record, Recovery, Scan};
use libfuzzer_sys::fuzz_target;

const IDENTITY: Identity = Identity { layout: 0, shard: 0, shards: 1 };
const EPOCH: u64 = 7;

fuzz_target!(|input: &[u8]| {
    let Some((&slice, input)) = input.split_first() else { return };
    // A block is 4096 bytes; so much is seldom found by chance, so each one is made of less.
    let mut blocks = Vec::new();
    for part in input.chunks(usize::from(slice) * 8 + 64) {
        blocks.extend_from_slice(part);
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    }
    let raw = found(&blocks, 1 + usize::from(slice) * 64);
    let mut segment = header(blocks.len() + 2 * BLOCK);
    segment.extend_from_slice(&blocks);
    for at in (2 * BLOCK..segment.len()).step_by(BLOCK) {
        seal(&mut segment, at);
    }
    let small = found(&segment, 1 + usize::from(slice) * 16);
    let large = found(&segment, usize::MAX);
    assert_eq!(small, large, "slices make no difference");
    drop(raw);
});

/// What is read, as text.
fn found(bytes: &[u8], slice: usize) -> String {
    let (mut scan, mut recovery, mut text) = (Scan::new(IDENTITY), Recovery::new(), String::new());
    let each = &mut |position: Position, record: Record<'_>| {
        text.push_str(&format!("{position:?} {record:?}\n"));
        recovery.handle(position, record);
    };
    for number in [2, 1] {
        if !scan.begin(number) {
            continue;
        }
        for slice in bytes.chunks(slice) {
            match scan.feed(slice, each) {
                Ok(Feed::More) => {}
                Ok(Feed::Done) => break,
                Err(refusal) => return refusal.to_string(),
            }
        }
        if let Err(refusal) = scan.end(each) {
            return refusal.to_string();
        }
    }
    let recovered = recovery.finish(scan.finish(), Config::new(IDENTITY, 1));
    format!("{text}{:?} {:?} {:?}", recovered.messages, recovered.returned, recovered.end)
}

/// The header of segment 2, once.
fn header(size: usize) -> Vec<u8> {
    let mut block = vec![0; 2 * BLOCK];
    block[..8].copy_from_slice(b"corelane");
    block[8] = 2;
    block[14] = 1;
    block[20] = 2;
    block[24..28].copy_from_slice(&(size as u32).to_le_bytes());
    block[32..40].copy_from_slice(&EPOCH.to_le_bytes());
    let checksum = crc_fast::crc32_iscsi(&block[..60]);
    block[60..64].copy_from_slice(&checksum.to_le_bytes());
    block
}

fn seal(segment: &mut [u8], at: usize) {
    segment[at + 4..at + 8].copy_from_slice(b"CLbt");
    let number = u64::from(segment[at + 8]);
    segment[at + 8..at + 16].copy_from_slice(&number.to_le_bytes());
    let length = word(segment, at + 16) as usize % (3 * BLOCK);
    segment[at + 16..at + 20].copy_from_slice(&(length as u32).to_le_bytes());
    seal_one(segment, at, 24);
    let end = (at + length).min(segment.len());
    let mut record = at + 24;
    while record + 13 <= end {
        let length = word(segment, record + 4) as usize;
        if length < 13 || length > end - record {
            break;
        }
        seal_one(segment, record, length);
        record += length;
    }
}

fn seal_one(segment: &mut [u8], at: usize, length: usize) {
    let seed = (EPOCH ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let checksum = crc_fast::crc32_iscsi(&segment[at + 4..at + length]) ^ (seed >> 32) as u32;
    segment[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
