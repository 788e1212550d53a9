//! Every seed through its target: what fuzzing once found stays found, with a plain `cargo test`.

use std::panic::catch_unwind;
use std::{env, fs, path::Path};

use fuzz::{TARGETS, seeds};

#[test]
fn every_seed_passes_its_target() {
    let mut failed = Vec::new();
    for (target, check) in TARGETS {
        for path in seeds(target).unwrap() {
            let input = fs::read(&path).unwrap();
            if catch_unwind(|| check(&input)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_target_is_built_and_has_seeds_of_a_few_kilobytes() {
    for (target, _) in TARGETS {
        let sizes = seeds(target).unwrap().into_iter().map(|path| path.metadata().unwrap().len());
        let (count, total) = sizes.fold((0, 0), |(count, total), size| (count + 1, total + size));
        assert!(count >= 3 && total <= 64 << 10, "{target}: {count} seeds of {total} bytes");
    }
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut built: Vec<_> = fs::read_dir(crate_root.join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    built.sort();
    assert_eq!(built, TARGETS.map(|(target, _)| target));
}
