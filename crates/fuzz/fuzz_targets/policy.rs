//! What it tries and what must hold is in `fuzz::policy`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::policy::check(input));

/// Without the fuzzer: tries the files that are named, to look at a finding.
#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    fuzz::replay(fuzz::policy::check)
}
