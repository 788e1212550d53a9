//! The probe: one request for the first bytes, before anything is paid for.

use std::sync::Arc;

use otctl_types::import::ImportReason;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::client::{ByteRange, Client, Cut, Reply};
use crate::download::size_unknown;
use crate::failure::Failure;
use crate::look::{Beginning, LOOK_BYTES, fits};
use crate::progress::Tally;
use crate::settings::Source;

/// What is read where the server sends everything: more may be on its way when we stop, and no
/// look costs more than [`LOOK_BYTES`].
const UNASKED_BYTES: u64 = LOOK_BYTES / 2;

/// Looks at `source`; what it saw is in `tally` also when the image does not fit.
///
/// # Errors
/// Why the image cannot be imported, as far as its first bytes tell.
pub async fn probe(source: &Source, tally: Arc<Tally>) -> Result<(), Failure> {
    let longest = source.timing.look;
    timeout(longest, look(source, tally)).await.unwrap_or_else(|_| {
        let seconds = longest.as_secs();
        let message = format!("the source did not send its first bytes within {seconds} s");
        Err(Failure::new(ImportReason::NoProgress, message))
    })
}

async fn look(source: &Source, tally: Arc<Tally>) -> Result<(), Failure> {
    let range = ByteRange { first: 0, last: Some(LOOK_BYTES - 1), if_range: None };
    let mut reply = Client::new(source)?.get(&range).await?;
    let (size, accepts_ranges) = extent(&reply)?;
    tally.expect_total(size);
    let wanted = if accepts_ranges { LOOK_BYTES } else { UNASKED_BYTES };
    let bytes = first_bytes(&mut reply, size.min(wanted), source, &tally).await?;
    let beginning = Beginning {
        bytes: &bytes,
        size,
        etag: reply.etag.clone(),
        accepts_ranges,
        is_page: reply.is_page,
    };
    let facts = beginning.facts()?;
    tally.learn(facts.clone());
    fits(&facts, &source.limits)
}

/// Length of the source, and whether it can be asked for parts.
fn extent(reply: &Reply) -> Result<(u64, bool), Failure> {
    match reply.answer {
        Answer::Part { first: 0, total: Some(total) } => Ok((total, true)),
        Answer::Whole { length: Some(length) } => Ok((length, false)),
        Answer::Part { first: 0, total: None } | Answer::Whole { length: None } => {
            Err(size_unknown())
        }
        Answer::Part { first, .. } => {
            let message = format!("the source sent bytes from {first} when asked from 0");
            Err(Failure::new(ImportReason::ServerError, message))
        }
        Answer::BeyondEnd { .. } => {
            Err(Failure::new(ImportReason::BadFormat, "the source is empty"))
        }
    }
}

/// Reads `wanted` bytes and no more; a server without ranges would send them all.
async fn first_bytes(
    reply: &mut Reply,
    wanted: u64,
    source: &Source,
    tally: &Tally,
) -> Result<Vec<u8>, Failure> {
    let wanted = usize::try_from(wanted).expect("bounded by LOOK_BYTES");
    let mut bytes = Vec::with_capacity(wanted);
    while bytes.len() < wanted {
        match reply.body.next().await {
            Ok(Some(some)) => {
                tally.receive(some.len() as u64);
                bytes.extend_from_slice(&some);
            }
            Ok(None) => return Err(ended_early(bytes.len(), &Cut::Closed)),
            Err(Cut::Stalled) => {
                let seconds = source.timing.stall.as_secs();
                let message = format!("no byte arrived for {seconds} s");
                return Err(Failure::new(ImportReason::NoProgress, message));
            }
            Err(cut) => return Err(ended_early(bytes.len(), &cut)),
        }
    }
    bytes.truncate(wanted);
    Ok(bytes)
}

fn ended_early(received: usize, cut: &Cut) -> Failure {
    let how = match cut {
        Cut::Broken(error) => error.as_str(),
        Cut::Closed | Cut::Stalled => "closed by the source",
    };
    let message = format!("the connection ended at byte {received}: {how}");
    Failure::new(ImportReason::ConnectionLost, message)
}
