//! The import as a whole: scratch volume, download, checksum, disk, record.

use std::sync::Arc;

use otctl_types::import::{ImportPhase, ImportReason, SourceFacts};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::convert::{Packed, convert};
use crate::disk;
use crate::download::Download;
use crate::failure::Failure;
use crate::progress::Tally;
use crate::scratch::{Checkpoint, Completion, Scratch, Spool};
use crate::settings::{Source, Target};
use crate::version::Likeness;

/// The sums of a finished import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// `sha256:<hex>` of the source's bytes.
    pub checksum: String,
    /// `sha256:<hex>` of the disk's bytes.
    pub disk_checksum: String,
}

/// Imports `source` into `target`, going on where an earlier run ended.
///
/// # Errors
/// Why there is no disk. What was received is kept, unless it is of no use.
pub async fn import(
    source: &Source,
    target: Arc<Target>,
    tally: &Arc<Tally>,
    cancel: &CancellationToken,
) -> Result<Imported, Failure> {
    let scratch = Scratch::lock(&target.scratch, &target.pod_uid)?;
    disk::check(&target)?;
    let kept = scratch
        .checkpoint()
        .filter(|kept| kept.version.beside_probe(&target.expected) == Likeness::Same);
    if let Some(imported) = finished(kept.as_ref(), &target, tally).await? {
        return Ok(imported);
    }
    // Reading the kept bytes again takes its time; progress does not fall back meanwhile.
    if let Some(kept) = &kept {
        tally.expect_total(kept.version.size);
        tally.reach(kept.offset);
    }
    let token = cancel.clone();
    let mut spool = blocking(move || Spool::open(scratch, kept, &token)).await?;
    let facts = fetch_verified(source, &target, &mut spool, tally, cancel).await;
    let made = match facts {
        Ok(facts) => make_disk(facts, &target, &spool, tally, cancel).await,
        Err(failure) => Err(failure),
    };
    conclude(made, spool, tally)
}

/// The result of an earlier run that got to the end, if it is what is asked for now and the disk
/// is still there. It costs no request.
async fn finished(
    kept: Option<&Checkpoint>,
    target: &Arc<Target>,
    tally: &Tally,
) -> Result<Option<Imported>, Failure> {
    let Some(done) = kept.and_then(|kept| kept.complete.clone()) else { return Ok(None) };
    let wanted = target.checksum.is_none_or(|sum| sum.to_string() == done.checksum);
    if !wanted || done.disk_size != target.disk_size {
        return Ok(None);
    }
    let (disk, sum) = (Arc::clone(target), done.disk_checksum.clone());
    if !blocking(move || disk::is_still_there(&disk, &sum)).await? {
        return Ok(None);
    }
    tracing::info!("found the result of an earlier run");
    let size = done.source.size.unwrap_or_default();
    tally.expect_total(size);
    tally.reach(size);
    tally.learn(done.source);
    tally.enter(ImportPhase::Done);
    Ok(Some(Imported { checksum: done.checksum, disk_checksum: done.disk_checksum }))
}

async fn fetch_verified(
    source: &Source,
    target: &Target,
    spool: &mut Spool,
    tally: &Arc<Tally>,
    cancel: &CancellationToken,
) -> Result<SourceFacts, Failure> {
    tally.enter(ImportPhase::Fetching);
    tracing::info!(offset = spool.offset(), "fetching the source");
    Download::new(source, &target.expected, spool, Arc::clone(tally))?.run(cancel).await?;
    tally.enter(ImportPhase::Verifying);
    let sum = spool.hasher().sum();
    if let Some(wanted) = target.checksum
        && wanted != sum
    {
        let message = format!("the source's bytes have {sum}, spec.checksum is {wanted}");
        return Err(Failure::new(ImportReason::ChecksumMismatch, message));
    }
    tally
        .source()
        .ok_or_else(|| Failure::new(ImportReason::Internal, "a whole download was never looked at"))
}

async fn make_disk(
    facts: SourceFacts,
    target: &Arc<Target>,
    spool: &Spool,
    tally: &Tally,
    cancel: &CancellationToken,
) -> Result<Completion, Failure> {
    tally.enter(ImportPhase::Converting);
    let image =
        Packed { path: spool.source_path(), unpacked: spool.unpacked_path(), facts: facts.clone() };
    let (disk, token) = (Arc::clone(target), cancel.clone());
    let sum = blocking(move || convert(&image, &disk, &token)).await?;
    Ok(Completion {
        checksum: spool.hasher().sum().to_string(),
        disk_checksum: sum.to_string(),
        disk_size: target.disk_size,
        source: facts,
    })
}

/// Records the result, or drops bytes that no later run can use.
fn conclude(
    made: Result<Completion, Failure>,
    mut spool: Spool,
    tally: &Tally,
) -> Result<Imported, Failure> {
    match made {
        Ok(done) => {
            let (checksum, disk_checksum) = (done.checksum.clone(), done.disk_checksum.clone());
            spool.finish(done)?;
            tally.enter(ImportPhase::Done);
            Ok(Imported { checksum, disk_checksum })
        }
        Err(failure) => {
            if failure.spoils_download() {
                spool.restart(None)?;
            }
            Err(failure)
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Failure::new(ImportReason::Internal, format!("a step ended unforeseen: {error}")))
    })
}
