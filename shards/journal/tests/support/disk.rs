//! A disk whose sectors are written one by one, and a source of chance for it.

use corelane_journal::Position;
use corelane_journal::Spare;
use std::collections::BTreeMap;

const SECTOR: usize = 512;

/// Where the first batch of a segment begins, behind two copies of its header.
pub(crate) const SEGMENT_START: usize = 8192;

/// xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: impl Iterator<Item = T>) -> Option<T> {
        let all: Vec<T> = from.collect();
        if all.is_empty() { None } else { Some(all[self.below(all.len() as u64) as usize].clone()) }
    }
}

/// Files by segment number. `batches` are what was synced: segment, offset, length.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    files: BTreeMap<u32, Vec<u8>>,
    spare: Vec<Vec<u8>>,
    pub batches: Vec<(u32, usize, usize)>,
}

impl Disk {
    pub(crate) fn files(&self) -> impl Iterator<Item = u32> {
        self.files.keys().copied()
    }

    pub(crate) fn bytes(&self, segment: u32) -> &[u8] {
        &self.files[&segment]
    }

    pub(crate) fn at(&self, position: Position) -> &[u8] {
        &self.files[&position.segment][position.offset as usize..][..position.length as usize]
    }

    /// A file of zeros, or one that was used before; or one that is there already, made longer.
    pub(crate) fn prepare(&mut self, spare: Spare, random: &mut Random) {
        let there = self.files.remove(&spare.number);
        let recycled = there.or_else(|| if random.below(5) > 0 { self.spare.pop() } else { None });
        let mut bytes = recycled.unwrap_or_default();
        bytes.resize(bytes.len().max(spare.bytes as usize), 0);
        self.files.insert(spare.number, bytes);
    }

    /// A freed file is recycled, or forgotten where it lies.
    pub(crate) fn free(&mut self, segment: u32, random: &mut Random) {
        if random.below(3) > 0 {
            self.spare.extend(self.files.remove(&segment));
        }
        self.batches.retain(|(number, _, _)| *number != segment);
    }

    pub(crate) fn free_others(&mut self, keep: &[u32], random: &mut Random) {
        let others: Vec<u32> = self.files().filter(|number| !keep.contains(number)).collect();
        others.into_iter().for_each(|number| self.free(number, random));
    }

    pub(crate) fn write(&mut self, segment: u32, offset: u64, bytes: &[u8]) {
        self.put(segment, offset as usize, bytes, |_| true);
        let header = if offset == 0 { SEGMENT_START } else { 0 };
        self.batches.push((segment, offset as usize + header, bytes.len() - header));
    }

    /// Some of the sectors are written: the first ones, the last ones, or any.
    pub(crate) fn tear(&mut self, segment: u32, offset: u64, bytes: &[u8], random: &mut Random) {
        let sectors = bytes.len() / SECTOR;
        let border = random.below(sectors as u64 + 1) as usize;
        match random.below(5) {
            0 => {}
            1 => self.put(segment, offset as usize, bytes, |sector| sector < border),
            2 => self.put(segment, offset as usize, bytes, |sector| sector >= border),
            3 => {
                let of = 2 + random.below(6);
                let written: Vec<bool> = (0..sectors).map(|_| random.below(of) > 0).collect();
                self.put(segment, offset as usize, bytes, |sector| written[sector]);
            }
            _ => self.write(segment, offset, bytes),
        }
    }

    fn put(&mut self, segment: u32, offset: usize, bytes: &[u8], is_written: impl Fn(usize) -> bool) {
        let file = self.files.get_mut(&segment).expect("a segment's file was prepared");
        for (sector, bytes) in bytes.chunks(SECTOR).enumerate().filter(|(sector, _)| is_written(*sector)) {
            let at = offset + sector * SECTOR;
            if file.len() < at + bytes.len() {
                file.resize(at + bytes.len(), 0);
            }
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Somewhere in what was synced, headers of segments included.
    pub(crate) fn any_place(&self, random: &mut Random) -> Option<(u32, usize)> {
        let (segment, offset, length) = random.pick(self.batches.iter().copied())?;
        match random.below(20) {
            0 => Some((segment, random.below(SEGMENT_START as u64) as usize)),
            1..6 => Some((segment, offset + random.below(40) as usize)),
            _ => Some((segment, offset + random.below(length as u64) as usize)),
        }
    }

    pub(crate) fn flip(&mut self, segment: u32, offset: usize, bit: u32) {
        self.files.get_mut(&segment).expect("it is there")[offset] ^= 1 << bit;
    }

    pub(crate) fn wipe(&mut self, segment: u32, offset: usize, length: usize) {
        self.files.get_mut(&segment).expect("it is there")[offset..offset + length].fill(0);
    }
}
