//! What the disks of a virtual machine hash to, as it stands in the program's output.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Read at once, in bytes.
const SLICE: usize = 1 << 20;
const START: &str = "disk ";
const SEPARATOR: &str = " sha256:";

/// The hash of every file, in 64 hexadecimal digits. It blocks.
pub(super) fn read_all(files: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let read = files.iter().map(|file| {
        let sum = read(file).with_context(|| format!("read disk {}", file.display()))?;
        Ok((file.clone(), sum))
    });
    read.collect()
}

/// Every byte, holes included.
fn read(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let (mut hasher, mut slice) = (Sha256::new(), vec![0; SLICE]);
    loop {
        match file.read(&mut slice)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            count => hasher.update(&slice[..count]),
        }
    }
}

/// The line of output that tells a hash.
pub(super) fn line(file: &Path, sum: &str) -> String {
    format!("{START}{}{SEPARATOR}{sum}", file.display())
}

/// The hashes that the output of the program tells, in the order of its disks; of a program that was started again, those
/// of each start.
pub fn sums_in(output: &str) -> Vec<&str> {
    let told = output.lines().filter_map(|line| line.strip_prefix(START)?.rsplit_once(SEPARATOR));
    told.map(|(_, sum)| sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_found_where_it_was_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk sha256:x.img");
        std::fs::write(&file, b"abc").unwrap();
        let read = read_all(std::slice::from_ref(&file)).unwrap();
        let told = format!("listening\n{}\nended", line(&file, &read[0].1));
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sums_in(&told), [abc]);
    }
}
