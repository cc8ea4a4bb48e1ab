//! How does a password get in? From the standard input, or typed twice without being shown.
//!
//! Never by an argument: other users of the machine would see it, and the shell would keep it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::users::PASSWORD_BYTES_MAX;

/// The password for a user.
pub(super) fn read_password(name: &str, from_stdin: bool) -> anyhow::Result<String> {
    if from_stdin {
        return read_line(&mut BufReader::new(io::stdin().lock()));
    }
    let Ok(mut terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        bail!(
            "there is no terminal to ask for the password at; give it on the standard input with --password-stdin"
        )
    };
    let first = ask(&mut terminal, &format!("Password for {name}: "))?;
    if ask(&mut terminal, "The same again: ")? != first {
        bail!("the two passwords are not the same; nothing was changed");
    }
    Ok(first)
}

fn ask(terminal: &mut File, question: &str) -> anyhow::Result<String> {
    terminal.write_all(question.as_bytes())?;
    let hidden = Hidden::start(terminal)?;
    let answer = read_line(&mut BufReader::new(&*terminal));
    drop(hidden);
    terminal.write_all(b"\n")?;
    answer
}

/// The first line, without its end. Longer than a password may be is cut so that it is refused.
fn read_line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    input.take(PASSWORD_BYTES_MAX as u64 + 3).read_until(b'\n', &mut bytes)?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    String::from_utf8(line.to_vec()).context("the password is not UTF-8")
}

/// While it lives, the terminal does not show what is typed.
struct Hidden {
    terminal: File,
    before: Termios,
}

impl Hidden {
    fn start(terminal: &File) -> io::Result<Hidden> {
        let terminal = terminal.try_clone()?;
        let before = tcgetattr(&terminal)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Flush, &modes)?;
        Ok(Hidden { terminal, before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        let check = |input: &str, expected: &str| {
            assert_eq!(read_line(&mut input.as_bytes()).unwrap(), expected, "{input:?}");
        };
        check("secret", "secret");
        check("secret\n", "secret");
        check("secret\r\nmore\n", "secret");
        check(" open sesame ", " open sesame ");
        check("", "");
        assert_eq!(read_line(&mut "x".repeat(5000).as_bytes()).unwrap().len(), PASSWORD_BYTES_MAX + 3);
        assert!(read_line(&mut &[0xff, 0xfe][..]).is_err());
    }
}
