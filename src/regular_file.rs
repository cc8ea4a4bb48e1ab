//! How is a file read by a thread that must not stand still? As text, if it is a regular file and not too large.
//!
//! Invariants: what may have no end, or wait for a writer (a FIFO, a device, a socket), is refused and not read; no more than the
//! given bytes are.
//! Left out: a disk, or a network's file system, that does not answer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The text of a file of at most so many bytes.
pub fn read_text(file: &Path, bytes_max: u64) -> io::Result<String> {
    // Without it, a FIFO is not even opened before somebody writes to it.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut text = String::new();
    // It may grow while it is read.
    file.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {bytes_max} bytes"),
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_is_read_up_to_a_size_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "four").unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "four");
        assert_eq!(read_text(&file, 3).unwrap_err().to_string(), "it has more than 3 bytes");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link, 4).unwrap(), "four");
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for other in [fifo.as_path(), Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(read_text(other, 4).unwrap_err().to_string(), "it is not a regular file");
        }
        assert_eq!(read_text(folder.path(), 4).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
