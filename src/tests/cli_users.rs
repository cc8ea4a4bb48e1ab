//! Does the users file keep what `corelane user` is told?
#![expect(clippy::unwrap_used, reason = "a test fails by it, with the place")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("users")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    /// Runs `corelane user …` with this on its standard input: exit code, standard output, standard error.
    fn user(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        user(&self.file(), arguments, input)
    }

    fn list(&self) -> String {
        let (code, output, error) = self.user(&["list"], "");
        assert_eq!(code, 0, "{error}");
        output
    }
}

fn user(file: &Path, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::cargo_bin("corelane").unwrap();
    command.arg("user").args(arguments).arg("--users").arg(file).write_stdin(input);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn users_come_and_go_and_no_password_is_written() {
    let world = World::new();
    let (code, output, error) = world.user(&["add", "bob", "--password-stdin"], "open sesame\n");
    assert_eq!((code, output.as_str(), error.as_str()), (0, "added bob\n", ""));
    assert_eq!(world.user(&["add", "alice", "--password-stdin"], "second").0, 0);
    assert_eq!(world.list(), "alice\nbob\n");
    assert!(!world.text().contains("sesame") && !world.text().contains("second"), "{}", world.text());
    assert_eq!(std::fs::metadata(world.file()).unwrap().permissions().mode() & 0o777, 0o600);

    let before = world.text();
    let (code, output, _) = world.user(&["add", "bob", "--password-stdin"], "open sesame");
    assert_eq!((code, output.as_str()), (0, "changed bob\n"));
    assert_ne!(world.text(), before, "the same password gets another salt");

    let (code, output, _) = world.user(&["remove", "bob"], "");
    assert_eq!((code, output.as_str()), (0, "removed bob\n"));
    assert_eq!(world.list(), "alice\n");
}

#[test]
fn what_cannot_be_done_is_told() {
    let world = World::new();
    let check = |arguments: &[&str], input: &str, expected: &str| {
        let (code, output, error) = world.user(arguments, input);
        assert_eq!((code, output.as_str()), (1, ""), "{arguments:?}");
        assert!(error.contains(expected), "{arguments:?} lacks {expected:?}: {error}");
    };
    check(&["list"], "", "does not exist; make it with `corelane user add NAME --users ");
    check(&["remove", "bob"], "", "there is no user \"bob\"");
    check(&["add", "bob", "--password-stdin"], "", "a password must not be empty");
    check(&["add", "bob", "--password-stdin"], &"x".repeat(2000), "a password has at most 1024 bytes");
    check(&["add", "two words", "--password-stdin"], "x", "must not hold white space");
    check(&["add", "", "--password-stdin"], "x", "must not be empty");
    assert!(!world.file().exists(), "nothing was made");
    let (code, _, error) = user(Path::new("/nowhere/users"), &["add", "bob", "--password-stdin"], "x");
    assert_eq!(code, 1);
    assert!(error.contains("/nowhere/users cannot be written"), "{error}");
}

#[test]
fn what_users_may_do_is_kept_and_listed() {
    let world = World::new();
    for name in ["alice", "bob"] {
        assert_eq!(world.user(&["add", name, "--password-stdin"], "x").0, 0);
    }
    assert!(!world.text().contains("@restricted"), "nobody was permitted anything");
    let permit = ["permit", "alice", "--vhost", "a b", "--configure", "^a %\"", "--read", ".*"];
    assert_eq!(world.user(&permit, ""), (0, "changed alice\n".to_owned(), String::new()));
    assert_eq!(world.user(&["tag", "alice", "administrator"], "").0, 0);
    let listed =
        "alice\n    administrator\n    \"a b\": configure \"^a %\\\"\", write \"\", read \".*\"\nbob\n";
    assert_eq!(world.list(), listed);
    // A new password changes nothing about that.
    assert_eq!(world.user(&["add", "alice", "--password-stdin"], "y").0, 0);
    assert_eq!(world.list(), listed);
    assert_eq!(world.user(&["permit", "alice", "--vhost", "a b", "--nothing"], "").0, 0);
    assert_eq!(world.user(&["tag", "alice"], "").0, 0);
    assert_eq!(world.list(), "alice\nbob\n");
    assert!(world.text().contains("@restricted"), "who may do nothing may not do everything");

    for (arguments, expected) in [
        (&["permit", "carol"][..], "there is no user \"carol\""),
        (&["permit", "alice", "--read", "("], "is not a regular expression"),
        (&["permit", "alice", "--vhost", ""], "cannot be a virtual host"),
    ] {
        let before = world.text();
        let (code, _, error) = world.user(arguments, "");
        assert_eq!(code, 1);
        assert!(error.contains(expected), "{arguments:?} lacks {expected:?}: {error}");
        assert_eq!(world.text(), before);
    }
}
