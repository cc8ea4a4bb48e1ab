//! Does what is written stay readable, byte for byte, and is what was written elsewhere or later refused?

use crate::buffer::Buffer;
use crate::format::*;
use crate::limits::{BLOCK, Identity};
use crate::record::*;
use bytes::Bytes;

const EPOCH: u64 = 0x0123_4567_89ab_cdef;

fn name(number: u64) -> TransactionName {
    TransactionName { boot: 9, shard: 2, number }
}

fn details() -> Details {
    Details {
        death: 3,
        deaths: Bytes::from_static(b"expired"),
        annotations: Bytes::from_static(b"note"),
        origin: Some(Origin { uid: 5, place: 6 }),
        transaction: Some(name(8)),
    }
}

fn message(details: Option<Box<Details>>) -> Message {
    Message {
        uid: 0x1111,
        place: 0x2222,
        enqueued_at: 0x3333,
        expires_at: 0x4444,
        held_until: 0x5555,
        format: 0x66,
        delivery_count: 0x77,
        acquired_count: 0x88,
        priority: 4,
        details,
    }
}

fn returned() -> Returned {
    Returned {
        uid: 1,
        place: 2,
        segment: 3,
        delivery_count: 4,
        acquired_count: 5,
        held_until: 6,
        annotations: Bytes::from_static(b"late"),
        death: 7,
    }
}

/// Writes one record as a batch of its own and compares what is read, whole, with every bit bad, and in another place.
fn check<M: Metadata>(metadata: &M, payload: &[u8], expect: &Record<'_>) {
    let mut buffer = Buffer::default();
    buffer.grow_to(BATCH_HEADER);
    append(&mut buffer, metadata, payload);
    let header = BatchHeader { number: 7, length: short(buffer.len()), count: 1 };
    seal(buffer.as_mut_slice(), header, EPOCH, 8192);
    let mut bytes = buffer.as_slice().to_vec();
    assert_eq!(BatchHeader::read(&bytes, EPOCH, 8192), Some(header));
    assert_eq!(BatchHeader::read(&bytes, EPOCH + 1, 8192), None);
    assert_eq!(BatchHeader::read(&bytes, EPOCH, 4096), None);
    let mut records = Vec::new();
    let bad =
        read_batch(&bytes, header, 3, EPOCH, 8192, &mut |position, record| records.push((position, record)));
    let offset = 8192 + BATCH_HEADER as u32;
    let position = Position { segment: 3, offset, length: short(bytes.len() - BATCH_HEADER) };
    assert_eq!((records, bad), (vec![(position, expect.clone())], None));
    let record = bytes.split_off(BATCH_HEADER);
    assert_eq!(read_record(&record, EPOCH, offset).0.as_ref(), Some(expect));
    assert_eq!(read_record(&record, EPOCH + 1, offset).0, None);
    assert_eq!(read_record(&record, EPOCH, offset + 1).0, None);
    for bit in 0..record.len() * 8 {
        let mut bad = record.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read_record(&bad, EPOCH, offset).0, None, "bit {bit}");
    }
    for length in 0..record.len() {
        assert_eq!(read_record(&record[..length], EPOCH, offset).0, None, "{length} bytes of it");
    }
}

#[test]
fn every_record_is_read_as_it_was_written() {
    let bytes = Bytes::from_static;
    let (properties, subscription) = (bytes(b"properties"), bytes(b""));
    let queue =
        Queue { uid: 1, version: 2, since: 3, kind: 4, name: "orders".to_owned(), properties, subscription };
    check(&queue, b"", &Record::Queue(queue.clone()));
    let deleted = QueueDeleted { uid: 1, since: 2, until: 3 };
    check(&deleted, b"", &Record::QueueDeleted(deleted.clone()));
    for message in [message(None), message(Some(Box::new(details()))), Message::default()] {
        check(&message, b"payload", &Record::Message(message.clone(), b"payload"));
        check(&message, b"", &Record::Message(message.clone(), b""));
    }
    let places = vec![Places { first: 1, last: 5 }, Places { first: 7, last: u64::MAX }];
    let removed = Removed { uid: 1, segment: 2, places };
    check(&removed, b"", &Record::Removed(removed.clone()));
    check(&returned(), b"", &Record::Returned(returned()));
    let prepared =
        Prepared { transaction: name(1), removed: vec![(1, 2), (3, 4)], returned: vec![returned(); 2] };
    check(&prepared, b"", &Record::Prepared(prepared.clone()));
    let decided = Decided { transaction: name(1), participants: vec![0, 65535] };
    check(&decided, b"", &Record::Decided(decided.clone()));
    let done = Done { transaction: name(1), committed: true, segments: vec![1, 2, 3] };
    check(&done, b"", &Record::Done(done.clone()));
    let started = Started { boot: 1, shards: 2, time: 3 };
    check(&started, b"", &Record::Started(started.clone()));
    let stopped = Stopped { time: 1 };
    check(&stopped, b"", &Record::Stopped(stopped.clone()));
    let segments = vec![SegmentEnd { segment: 1, batch_end: 2 }];
    let manifest = Manifest { boot: 1, sequence_end: 2, uid_end: 3, certain_from: 4, segments };
    check(&manifest, b"", &Record::Manifest(manifest.clone()));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Journals that are on disks have these bytes. If they change, [`crate::VERSION`] has to.
#[test]
fn the_layout_is_what_it_was() {
    let mut buffer = Buffer::default();
    buffer.grow_to(BATCH_HEADER);
    append(&mut buffer, &message(None), b"payload");
    append(
        &mut buffer,
        &Removed { uid: 0x11, segment: 0x22, places: vec![Places { first: 3, last: 4 }] },
        b"",
    );
    append(&mut buffer, &message(Some(Box::new(details()))), b"");
    let header = BatchHeader { number: 7, length: short(buffer.len()), count: 3 };
    seal(buffer.as_mut_slice(), header, EPOCH, 4096);
    let bytes = buffer.as_slice();
    let (message, rest) = bytes[BATCH_HEADER..].split_at(77);
    let (removed, detailed) = rest.split_at(49);
    assert_eq!(hex(&bytes[..BATCH_HEADER]), "324424b6434c627407000000000000001801000003000000");
    assert_eq!(
        hex(message),
        "a4b0d96c4d0000003900000003111100000000000022220000000000003333000000000000444400\
         0000000000555500000000000066000000770000008800000004010000007061796c6f6164"
    );
    assert_eq!(
        hex(removed),
        "7258e63e310000002400000004030000000000000004000000000000001100000000000000220000\
         00e4ffffff01000000"
    );
    assert_eq!(
        hex(detailed),
        "a9041385820000007500000003657870697265646e6f746503f4ffffff07000000f3ffffff040000\
         00010500000000000000060000000000000001090000000200080000000000000011110000000000\
         00222200000000000033330000000000004444000000000000555500000000000066000000770000\
         0088000000049affffff"
    );
    let mut block = vec![0; SEGMENT_START];
    segment_header().write(&mut block);
    assert_eq!(
        hex(&block[..SEGMENT_HEADER]),
        "636f72656c616e65020000002200330011000000440000000000000400000000efcdab8967452301\
         55000000000000000000000000000000000000006fec56e6"
    );
}

fn segment_header() -> SegmentHeader {
    let identity = Identity { layout: 0x11, shard: 0x22, shards: 0x33 };
    SegmentHeader { identity, segment: 0x44, size: 64 << 20, epoch: EPOCH, first_batch: 0x55 }
}

#[test]
fn one_copy_of_a_segments_header_is_enough() {
    let mut block = vec![0; SEGMENT_START];
    segment_header().write(&mut block);
    assert_eq!(SegmentHeader::read(&block, 0x44), FirstBlocks::Header(segment_header()));
    assert_eq!(SegmentHeader::read(&block, 0x45), FirstBlocks::Nothing, "it was recycled");
    for copy in [0, SECOND_COPY] {
        let mut bad = block.clone();
        bad[copy..copy + BLOCK].fill(0xff);
        assert_eq!(
            SegmentHeader::read(&bad, 0x44),
            FirstBlocks::Header(segment_header()),
            "one block is lost"
        );
    }
    for bit in 0..SEGMENT_HEADER * 8 {
        for copy in [0, SECOND_COPY] {
            let mut bad = block.clone();
            bad[copy + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::read(&bad, 0x44), FirstBlocks::Header(segment_header()));
            bad[SECOND_COPY - copy..][..SEGMENT_HEADER].fill(0);
            assert_eq!(SegmentHeader::read(&bad, 0x44), FirstBlocks::Nothing);
        }
    }
}

#[test]
fn another_version_is_told_by_its_number() {
    let mut block = vec![0; SEGMENT_START];
    segment_header().write(&mut block);
    block[8..12].copy_from_slice(&3u32.to_le_bytes());
    let checksum = crc_fast::crc32_iscsi(&block[..60]);
    block[60..64].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(SegmentHeader::read(&block, 0x44), FirstBlocks::Version(3));
}
