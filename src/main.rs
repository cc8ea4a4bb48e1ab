//! The `corelane` program. Everything it does is in the library.

use std::process::ExitCode;

/// Messages are freed on other threads than they were allocated on; this allocator makes that cheap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    corelane::cli::main(std::env::args_os())
}
