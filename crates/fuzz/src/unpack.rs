//! Images that are compressed as a whole: what comes out is what the packed bytes say, and no more than was asked for.

use disk_importer::unpack::{Unpacked, beginning, compression};
use otctl_types::import::{Compression, FailureClass};

/// Where the reader stops asking, as a disk does that is full.
const ROOM: usize = 4 << 20;
const CHUNK: usize = 256 << 10;
const LOOK: usize = 4096;

/// Bounded output, the same at the first look and in the end, and failures that no retry repeats.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let Some(kind) = compression(input) else { return };
    let start = look(kind, input, true);
    let Some(whole) = unpack(kind, input) else { return };
    if let Some(start) = start {
        assert!(whole.starts_with(&start), "a look saw other bytes than the import");
        assert!(
            start.len() == LOOK.min(whole.len()),
            "a look of a whole file saw less than there is"
        );
    }
    // Of the beginning of a file a look sees the beginning of what is in it, or nothing yet.
    let cut = &input[..input.len() / 2];
    if let Some(start) = look(kind, cut, false) {
        assert!(whole.starts_with(&start), "half of the file unpacks to something else");
    }
}

fn look(kind: Compression, bytes: &[u8], is_whole: bool) -> Option<Vec<u8>> {
    match beginning(kind, bytes, is_whole, LOOK) {
        Ok(start) => {
            assert!(start.len() <= LOOK, "a look gave {} bytes", start.len());
            Some(start)
        }
        Err(failure) => {
            assert_eq!(failure.reason.class(), FailureClass::Terminal, "{failure}");
            None
        }
    }
}

/// All that comes out, up to the room; none when it fails on the way.
fn unpack(kind: Compression, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut packed = Unpacked::new(kind, bytes).expect("there is memory");
    let (mut whole, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    while whole.len() < ROOM {
        match packed.fill(&mut chunk) {
            Ok(0) => break,
            Ok(count) => whole.extend_from_slice(&chunk[..count]),
            Err(failure) => {
                assert_eq!(failure.reason.class(), FailureClass::Terminal, "{failure}");
                return None;
            }
        }
    }
    Some(whole)
}
