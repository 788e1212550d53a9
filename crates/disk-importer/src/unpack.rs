//! Images that are compressed as a whole: told by their first bytes, unpacked as a stream of which
//! the reader takes no more than it has room for. Files of several members, frames or streams
//! are read to their end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use otctl_types::import::{Compression, ImportReason};

use crate::failure::Failure;

/// The most memory that a packed image may ask for, in bytes: what `xz -9` and `zstd --ultra -22`
/// need, and half of what an import pod has.
const MEMORY_BYTES: u64 = 128 * 1024 * 1024;
const LARGEST_WINDOW: u32 = MEMORY_BYTES.ilog2();

const INPUT_BYTES: usize = 256 * 1024;

/// The bytes of a packed image, unpacked. What is wrong with the packed ones is told by
/// [`Unpacked::fill`].
pub struct Unpacked<R: BufRead> {
    compression: Compression,
    decoder: Decoder<R>,
}

enum Decoder<R: BufRead> {
    Gzip(MultiGzDecoder<R>),
    Xz(XzDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

/// What the image that begins with `bytes` is compressed with, if it is.
#[must_use]
pub fn compression(bytes: &[u8]) -> Option<Compression> {
    match bytes {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
        // A frame, or one to skip that some compressors put in front.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Some(Compression::Zstd)
        }
        _ => None,
    }
}

/// What can be unpacked of the first bytes of an image, at most `limit` bytes.
///
/// # Errors
/// `BadFormat` when they are damaged, or end too early although they are the whole image.
pub fn beginning(
    compression: Compression,
    bytes: &[u8],
    is_whole: bool,
    limit: usize,
) -> Result<Vec<u8>, Failure> {
    let mut decoder =
        Decoder::new(compression, bytes).map_err(|error| wrong(compression, &error))?;
    let mut unpacked = vec![0; limit];
    let mut filled = 0;
    while filled < limit {
        match decoder.read(&mut unpacked[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            // The rest was not asked for.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !is_whole => break,
            Err(error) => return Err(wrong(compression, &error)),
        }
    }
    unpacked.truncate(filled);
    Ok(unpacked)
}

impl<R: Read> Unpacked<BufReader<R>> {
    /// Unpacks what `packed` holds.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(compression: Compression, packed: R) -> Result<Self, Failure> {
        let packed = BufReader::with_capacity(INPUT_BYTES, packed);
        let decoder = Decoder::new(compression, packed).map_err(|error| wrong(compression, &error));
        Ok(Self { compression, decoder: decoder? })
    }

    /// The next bytes: as many as `chunk` has room for, fewer only at the end.
    ///
    /// # Errors
    /// `BadFormat` when the packed bytes are damaged or end too early, or a zstd frame's window is
    /// larger than the memory for it; `UnsupportedFormat` when an xz file needs more than it gets;
    /// `Internal` when they cannot be read.
    pub fn fill(&mut self, chunk: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        while filled < chunk.len() {
            match self.decoder.read(&mut chunk[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(wrong(self.compression, &error)),
            }
        }
        Ok(filled)
    }
}

impl<R: BufRead> Decoder<R> {
    fn new(compression: Compression, packed: R) -> io::Result<Self> {
        match compression {
            Compression::Gzip => Ok(Self::Gzip(MultiGzDecoder::new(packed))),
            Compression::Xz => {
                let stream = Stream::new_stream_decoder(MEMORY_BYTES, CONCATENATED)?;
                Ok(Self::Xz(XzDecoder::new_stream(packed, stream)))
            }
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(LARGEST_WINDOW)?;
                Ok(Self::Zstd(decoder))
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Xz(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

fn wrong(compression: Compression, error: &io::Error) -> Failure {
    if error.raw_os_error().is_some() {
        return Failure::of_volume("read the scratch volume", error);
    }
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<liblzma::stream::Error>());
    if let Some(liblzma::stream::Error::MemLimit) = cause {
        let message = format!(
            "unpacking the {compression} file needs more than {MEMORY_BYTES} bytes of memory; \
             compress it with a smaller dictionary, such as that of `xz -9`"
        );
        return Failure::new(ImportReason::UnsupportedFormat, message);
    }
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => "ends too early".to_owned(),
        _ => format!("cannot be unpacked: {error}"),
    };
    Failure::new(ImportReason::BadFormat, format!("the {compression} file {what}"))
}
