//! What must hold of the source tree that no compiler checks?
//!
//! Rules are functions from a file's path and text to findings, so that each can be shown to fail on a small bad example.
//! `tests/tree.rs` applies all of them to the whole tree and is an ordinary test of the workspace.
//!
//! Left out on purpose: what rustc, clippy and rustfmt already say, and that a shard is `!Send`, which its own crate proves
//! when it compiles.

pub mod edges;
pub mod source;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One place that breaks one rule. `line` counts from 1; 0 stands for the whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub rule: Rule,
    pub what: String,
}

/// The rules, by the name that a finding is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A dependency that the house does not have.
    Edge,
    /// A manifest that does not take the workspace's lints.
    Lints,
    /// The runtime named outside its folder.
    Runtime,
    /// A module without a header that says what it is for.
    Header,
    /// A file that grew too long.
    FileLength,
    /// A function that grew too long.
    FunctionLength,
    /// State held across a suspension point below `shards/`.
    Await,
    /// A panic without a reason.
    Unwrap,
    /// Unsafe code outside the driver.
    Unsafe,
    /// Shared memory outside the mailbox.
    Atomics,
    /// A test that does not run.
    Ignored,
    /// Work left undone.
    Unfinished,
    /// Text that is no Rust.
    Syntax,
    /// A file that a tool or an editor left behind.
    LeftOver,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {:?}: {}", self.path, self.line, self.rule, self.what)
    }
}

/// The files that the rules look at, as paths relative to `root` with `/` between the parts, sorted.
pub fn files(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !matches!(name.as_str(), "target" | "node_modules" | "corpus") {
                    folders.push(path);
                }
            } else if is_text(&name) || is_left_over(&name) {
                found.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_text(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((_, extension)) => matches!(extension, "rs" | "toml" | "py" | "js" | "java" | "sh"),
        None => matches!(name, "run" | "test" | "scenarios" | "instructions" | "mutants"),
    }
}

/// What merging, patching and editing leave beside a file.
fn is_left_over(name: &str) -> bool {
    name.ends_with('~') || [".orig", ".rej", ".bak", ".swp"].iter().any(|end| name.ends_with(end))
}

/// Every finding in the tree under `root`.
pub fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let mut texts = Vec::new();
    let (left_over, files): (Vec<_>, Vec<_>) = files(root)?.into_iter().partition(|path| is_left_over(path));
    for path in files {
        let text = fs::read_to_string(root.join(&path))?;
        texts.push((path, text));
    }
    let mut findings = edges::check(&texts);
    findings.extend(source::check(&texts));
    findings.extend(left_over.into_iter().map(|path| {
        let what = "a tool or an editor left it behind".to_owned();
        Finding { path, line: 0, rule: Rule::LeftOver, what }
    }));
    Ok(findings)
}
