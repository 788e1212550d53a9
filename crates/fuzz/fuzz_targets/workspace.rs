//! What it tries and what must hold is in `fuzz::workspace`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::workspace::check(input));

/// Without the fuzzer: tries the files that are named, to look at a finding.
#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    fuzz::replay(fuzz::workspace::check)
}
