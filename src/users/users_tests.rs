//! Does the users file keep what it is given, and say what is wrong with it?

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

fn verifier(password: &str) -> Verifier {
    Verifier::new(password, b"a salt of ours", 4096)
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn users_are_added_changed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.txt");
    assert_eq!(load_or_empty(&file).unwrap(), Users::default());
    update(&file, |users| !users.insert("bob".to_owned(), verifier("one"))).unwrap();
    update(&file, |users| !users.insert("alice".to_owned(), verifier("two"))).unwrap();
    let (users, stamp) = load(&file).unwrap();
    assert_eq!(users.names().collect::<Vec<_>>(), ["alice", "bob"]);
    assert!(users.verifier("alice").unwrap().accepts(b"two"));
    assert!(users.verifier("carol").is_none());
    assert!(!read(&file).contains("two"), "no password may be written");

    update(&file, |users| users.insert("alice".to_owned(), verifier("three"))).unwrap();
    let (users, changed) = load(&file).unwrap();
    assert_ne!(stamp, changed);
    assert!(users.verifier("alice").unwrap().accepts(b"three"));
    update(&file, |users| users.remove("alice")).unwrap();
    assert_eq!(load(&file).unwrap().0.names().collect::<Vec<_>>(), ["bob"]);
    update(&file, |users| users.remove("alice")).unwrap();
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
    assert_eq!(names, ["users.txt"], "nothing is left beside it");
}

#[test]
fn the_file_is_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.txt");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(folder.path().join("users.txt.new"), "left by a killed writer").unwrap();
    update(&file, |users| !users.insert("bob".to_owned(), verifier("one"))).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("users.txt"), folder.path().join("link"));
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    update(&link, |users| !users.insert("bob".to_owned(), verifier("one"))).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(load(&file).unwrap().0.count(), 1);
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.txt");
    std::thread::scope(|scope| {
        for index in 0..8 {
            let file = &file;
            scope.spawn(move || {
                update(file, |users| !users.insert(format!("user{index}"), verifier("one"))).unwrap();
            });
        }
    });
    assert_eq!(load(&file).unwrap().0.count(), 8);
}

#[test]
fn a_wrong_line_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.txt");
    let good = verifier("one");
    let check = |text: String, expected: &[&str]| {
        std::fs::write(&file, &text).unwrap();
        let error = load(&file).expect_err(&text).to_string();
        for part in ["users.txt"].iter().chain(expected) {
            assert!(error.contains(part), "{text:?} lacks {part:?}: {error}");
        }
    };
    check("# users\n\nbob\n".to_owned(), &[":3: ", "SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY"]);
    check("bob secret\n".to_owned(), &[":1: ", "expected SCRAM-SHA-256$"]);
    check(format!("bob {good}\nbob {good}\n"), &[":2: ", "earlier line"]);
    check(format!("b\u{7}b {good}\n"), &[":1: ", "control characters"]);
    check(format!("bob {}", good.to_string().replace("$4096:", "$10:")), &[":1: ", "iterations", "4096"]);
}

#[test]
fn a_missing_file_is_told_with_what_to_do() {
    let error = load(Path::new("/nowhere/users.txt")).unwrap_err().to_string();
    assert!(error.contains("corelane user add NAME --users /nowhere/users.txt"), "{error}");
    let error = update(Path::new("/nowhere/users.txt"), |_| true).unwrap_err().to_string();
    assert!(error.contains("/nowhere/users.txt cannot be written"), "{error}");
}

#[test]
fn names_and_passwords() {
    assert_eq!(prepare_name("bob"), Ok("bob".to_owned()));
    // RFC 4013 §3: compatibility characters are mapped, so both ways to type a name mean the same user.
    assert_eq!(prepare_name("\u{2168}"), Ok("IX".to_owned()));
    assert_eq!(prepare_name(""), Err(CredentialError::NameEmpty));
    assert_eq!(prepare_name("a b"), Err(CredentialError::NameCharacter));
    assert_eq!(prepare_name("a\nb"), Err(CredentialError::NameCharacter));
    assert_eq!(prepare_name("#bob"), Err(CredentialError::NameCharacter));
    assert_eq!(prepare_name(&"x".repeat(300)), Err(CredentialError::NameTooLong));
    assert_eq!(prepare_password("open sesame"), Ok("open sesame".to_owned()));
    assert_eq!(prepare_password(""), Err(CredentialError::PasswordEmpty));
    assert_eq!(prepare_password("a\u{0}b"), Err(CredentialError::PasswordCharacter));
    assert_eq!(prepare_password(&"x".repeat(2000)), Err(CredentialError::PasswordTooLong));
}
