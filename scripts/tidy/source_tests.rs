//! Each rule on source texts, shown to pass and shown to fail.

use super::*;

/// Checks one file and compares the rules it breaks, with their lines, with `expect`.
fn check_one(path: &str, text: &str, expect: &[(Rule, usize)]) {
    let texts = vec![(path.to_owned(), text.to_owned())];
    let found: Vec<(Rule, usize)> =
        check(&texts).iter().map(|finding| (finding.rule, finding.line)).collect();
    assert_eq!(found, expect, "{:?}", check(&texts));
}

fn lines(count: usize) -> String {
    "    let _ = 1;\n".repeat(count)
}

#[test]
fn a_module_opens_with_its_question() {
    check_one("shards/engine/queue.rs", "//! Which?\n", &[]);
    check_one("shards/engine/queue.rs", "// Which?\nfn a() {}\n", &[(Rule::Header, 1)]);
    check_one("shards/engine/tests/model.rs", "use std::fmt;\n", &[(Rule::Header, 1)]);
}

#[test]
fn a_file_ends_in_time() {
    let item = "const A: u8 = 1;\n";
    check_one("src/cli.rs", &format!("//!\n{}", item.repeat(FILE_LINES_MAX - 1)), &[]);
    check_one("src/cli.rs", &format!("//!\n{}", item.repeat(FILE_LINES_MAX)), &[(Rule::FileLength, 0)]);
}

#[test]
fn tests_do_not_make_a_file_long() {
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const A: u8 = 1;\n".repeat(900));
    check_one("src/cli.rs", &format!("//!\n{tests}"), &[]);
    check_one("src/cli_tests.rs", &format!("//!\n{}", "const A: u8 = 1;\n".repeat(900)), &[]);
}

#[test]
fn a_function_ends_in_time() {
    let function = |count| format!("//!\nstruct A;\nimpl A {{\nfn a() {{\n{}}}\n}}\n", lines(count));
    check_one("src/cli.rs", &function(FUNCTION_LINES_MAX - 2), &[]);
    check_one("src/cli.rs", &function(FUNCTION_LINES_MAX - 1), &[(Rule::FunctionLength, 4)]);
    let free = format!("//!\nfn a() {{\n{}}}\n", lines(FUNCTION_LINES_MAX));
    check_one("src/cli.rs", &free, &[(Rule::FunctionLength, 2)]);
    let provided = format!("//!\ntrait T {{\nfn a() {{\n{}}}\n}}\n", lines(FUNCTION_LINES_MAX));
    check_one("src/cli.rs", &provided, &[(Rule::FunctionLength, 3)]);
    let test = format!("//!\n#[test]\nfn a() {{\n{}}}\n", lines(FUNCTION_LINES_MAX));
    check_one("src/cli.rs", &test, &[]);
}

#[test]
fn nothing_below_shards_waits() {
    let text = "//!\nasync fn a() {\n    b().await;\n}\n";
    check_one("shards/shard/pump.rs", text, &[(Rule::Await, 3)]);
    check_one("src/driver/pump.rs", text, &[]);
    check_one("shards/shard/pump.rs", "//!\n// a().await\nconst A: &str = \"a.await\";\n", &[]);
}

#[test]
fn unwrap_is_for_tests() {
    let text = "//!\nfn a() {\n    b().unwrap();\n}\n";
    check_one("shards/wire/frame.rs", text, &[(Rule::Unwrap, 3)]);
    check_one("bench-harness/src/main.rs", text, &[(Rule::Unwrap, 3)]);
    check_one("shards/wire/frame_tests.rs", text, &[]);
    check_one("shards/wire/tests/frames.rs", text, &[]);
    check_one(
        "shards/wire/frame.rs",
        "//!\n#[cfg(test)]\nmod tests {\n    fn a() {\n        b().unwrap();\n    }\n}\n",
        &[],
    );
    check_one("shards/wire/frame.rs", "//!\nfn a() {\n    b().unwrap_or(1);\n}\n", &[]);
    let not = "//!\n#[cfg(not(test))]\nmod own {\n    fn a() {\n        b().unwrap();\n    }\n}\n";
    check_one("shards/wire/frame.rs", not, &[(Rule::Unwrap, 5)]);
    let hidden = "//!\nfn a() {\n    write!(f, \"{}\", b().unwrap());\n}\n";
    check_one("shards/wire/frame.rs", hidden, &[(Rule::Unwrap, 3)]);
}

#[test]
fn a_module_declared_for_tests_is_a_test() {
    let model = "//!\nfn a() {\n    b().unwrap();\n}\n".to_owned();
    let declared = |by: &str, text: &str, file: &str| {
        let texts = vec![(by.to_owned(), text.to_owned()), (file.to_owned(), model.clone())];
        check(&texts).len()
    };
    assert_eq!(
        declared("shards/engine/lib.rs", "//!\n#[cfg(test)]\nmod oracle;\n", "shards/engine/oracle.rs"),
        0
    );
    assert_eq!(declared("shards/engine/lib.rs", "//!\nmod oracle;\n", "shards/engine/oracle.rs"), 1);
    assert_eq!(
        declared("shards/engine/queue.rs", "//!\n#[cfg(test)]\nmod model;\n", "shards/engine/queue/model.rs"),
        0
    );
    let renamed = "//!\n#[cfg(test)]\n#[path = \"model.rs\"]\nmod tests;\n";
    assert_eq!(declared("shards/engine/queue.rs", renamed, "shards/engine/model.rs"), 0);
}

#[test]
fn unsafe_stays_in_the_driver() {
    let text = "//!\nfn a() {\n    unsafe { b() }\n}\n";
    check_one("shards/engine/chunk.rs", text, &[(Rule::Unsafe, 3)]);
    check_one("src/boot.rs", text, &[(Rule::Unsafe, 3)]);
    check_one("src/driver/ring.rs", text, &[]);
}

#[test]
fn only_the_mailbox_shares_memory() {
    let text = "//!\nuse std::sync::atomic::Ordering;\nstruct A(AtomicU64);\n";
    check_one("shards/shard/lib.rs", text, &[(Rule::Atomics, 2), (Rule::Atomics, 3)]);
    check_one("shards/mailbox/lane.rs", text, &[]);
    check_one("src/control.rs", text, &[]);
}

#[test]
fn the_runtime_is_named_in_one_folder() {
    for (name, text) in
        [("glommio", "//!\nuse glommio::Task;\n"), ("io_uring", "//!\n// as io_uring has it\n")]
    {
        check_one("src/main.rs", text, &[(Rule::Runtime, 2)]);
        check_one("shards/shard/lib.rs", text, &[(Rule::Runtime, 2)]);
        check_one("src/driver/ring.rs", text, &[]);
        check_one("src/boot.rs", text, &[]);
        assert!(RUNTIME_NAMES.contains(&name));
    }
}

#[test]
fn modules_name_those_below_them() {
    let upwards = "//!\nuse crate::doorbell::Doorbell;\nuse crate::driver::Disk;\nuse crate::storage::X;\n";
    check_one("src/storage/open.rs", upwards, &[(Rule::Edge, 3)]);
    check_one("src/storage.rs", "//!\nfn a() -> crate::cli::A {}\n", &[(Rule::Edge, 2)]);
    check_one("src/driver/disk.rs", upwards, &[]);
    check_one("src/cli/serve.rs", upwards, &[]);
    check_one("src/tests/disk.rs", upwards, &[]);
    check_one("src/lib.rs", upwards, &[]);
    let list = "//!\nuse crate::{users::{A, cli::B}, x::driver, driver::C};\nfn boot() {}\n";
    check_one("src/storage/open.rs", list, &[(Rule::Edge, 2)]);
    check_one("src/storage/open.rs", "//!\nuse crate::{users::{A, cli::B}, x::driver};\n", &[]);
    check_one("src/outpost.rs", "//!\n", &[(Rule::Edge, 0)]);
}

#[test]
fn every_test_runs() {
    check_one("src/cli_tests.rs", "//!\n#[test]\n#[ignore]\nfn a() {}\n", &[(Rule::Ignored, 3)]);
    check_one("src/cli_tests.rs", "//!\n#[test]\n#[ignore = \"slow\"]\nfn a() {}\n", &[(Rule::Ignored, 3)]);
    check_one(
        "src/cli_tests.rs",
        "//!\n#[test]\n#[cfg_attr(miri, ignore)]\nfn a() {}\n",
        &[(Rule::Ignored, 3)],
    );
    let example = format!("//!\n//! {}\n//! a();\n//! ```\n", concat!("```", "ignore"));
    check_one("src/cli.rs", &example, &[(Rule::Ignored, 2)]);
}

#[test]
fn nothing_is_left_undone() {
    check_one("src/cli.rs", "//!\nfn a() {\n    todo!()\n}\n", &[(Rule::Unfinished, 3)]);
    check_one("src/cli.rs", "//!\nfn a() {\n    unimplemented!(\"later\")\n}\n", &[(Rule::Unfinished, 3)]);
    let mark = format!("//!\n// {}: later\n", concat!("FIX", "ME"));
    check_one("src/cli.rs", &mark, &[(Rule::Unfinished, 2)]);
    check_one("scripts/interop/run", &format!("# {}\n", concat!("FIX", "ME")), &[(Rule::Unfinished, 1)]);
}

#[test]
fn what_is_no_rust_is_said() {
    check_one("src/cli.rs", "//!\nfn a( {}\n", &[(Rule::Syntax, 2)]);
}
