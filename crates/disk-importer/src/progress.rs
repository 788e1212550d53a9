//! What a run has done so far, shared with whoever looks, and the server that shows it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;
use axum::{Json, Router};
use otctl_types::import::{ImportPhase, Progress, Share, SourceFacts, Standing};
use secrecy::ExposeSecret as _;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::bandwidth::Bandwidth;
use crate::settings::ProgressEndpoint;
use crate::sha256::Sum;

/// The most bytes of a `POST /progress`.
const LONGEST_SHARE: usize = 4096;

/// What a run has done so far. Counters only; a reader may see them a moment apart.
#[derive(Debug, Default)]
pub struct Tally {
    offset: AtomicU64,
    received: AtomicU64,
    download_started: AtomicBool,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
struct Stage {
    phase: ImportPhase,
    total: Option<u64>,
    source: Option<SourceFacts>,
}

impl Default for Stage {
    fn default() -> Self {
        Self { phase: ImportPhase::Fetching, total: None, source: None }
    }
}

impl Tally {
    /// A request for the image's data is about to be sent.
    pub fn start_download(&self) {
        self.download_started.store(true, Ordering::Relaxed);
    }

    /// So many body bytes arrived.
    pub fn receive(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The source's bytes up to `offset` are on the scratch volume.
    pub fn reach(&self, offset: u64) {
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// The source's length is known.
    pub fn expect_total(&self, bytes: u64) {
        self.stage().total = Some(bytes);
    }

    /// The run has come to another phase.
    pub fn enter(&self, phase: ImportPhase) {
        self.stage().phase = phase;
    }

    /// The source was looked at.
    pub fn learn(&self, source: SourceFacts) {
        self.stage().source = Some(source);
    }

    /// Whether a request for the image's data was sent.
    #[must_use]
    pub fn download_started(&self) -> bool {
        self.download_started.load(Ordering::Relaxed)
    }

    /// Body bytes received in this run.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// What the source told, once it was looked at.
    #[must_use]
    pub fn source(&self) -> Option<SourceFacts> {
        self.stage().source.clone()
    }

    /// All of it, as it is shown.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let (phase, total) = {
            let stage = self.stage();
            (stage.phase, stage.total)
        };
        let bytes = self.offset.load(Ordering::Relaxed);
        Progress {
            phase,
            bytes,
            total_bytes: total,
            received: self.received(),
            percent: percent(bytes, total),
        }
    }

    fn stage(&self) -> std::sync::MutexGuard<'_, Stage> {
        // Nothing panics while holding it, and plain fields are whole at any moment.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves `/progress` until the handle is dropped; gives the address it listens on. GET shows what
/// was done so far, POST changes the share of `bandwidth` first, unless a later one was taken before.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(
    endpoint: &ProgressEndpoint,
    tally: Arc<Tally>,
    bandwidth: Bandwidth,
) -> std::io::Result<(SocketAddr, AbortOnDropHandle<()>)> {
    let listener = TcpListener::bind(endpoint.address).await?;
    let address = listener.local_addr()?;
    let key = endpoint.key.expose_secret();
    let desk = Desk { key: Sum::of(key.as_bytes()), open: !key.is_empty(), tally, bandwidth };
    let router = Router::new()
        .route("/progress", get(show).post(grant))
        .layer(DefaultBodyLimit::max(LONGEST_SHARE))
        .with_state(Arc::new(desk));
    let server = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::warn!(%error, "progress server ended");
        }
    });
    Ok((address, AbortOnDropHandle::new(server)))
}

struct Desk {
    key: Sum,
    open: bool,
    tally: Arc<Tally>,
    bandwidth: Bandwidth,
}

impl Desk {
    fn check_key(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = shown.and_then(|value| value.strip_prefix("Bearer "));
        // Sums are compared instead of keys: how long that takes says nothing about the key.
        match key {
            Some(key) if self.open && Sum::of(key.as_bytes()) == self.key => Ok(()),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }

    fn standing(&self) -> Json<Standing> {
        let clock_ms = u64::try_from(self.bandwidth.clock().as_millis()).ok();
        Json(Standing { progress: self.tally.progress(), clock_ms, fence: self.bandwidth.taken() })
    }
}

async fn show(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Json<Standing>, StatusCode> {
    desk.check_key(&headers)?;
    Ok(desk.standing())
}

async fn grant(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Standing>), StatusCode> {
    desk.check_key(&headers)?;
    let share: Share = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let status = desk.bandwidth.grant(&share).map_or(StatusCode::CONFLICT, |()| StatusCode::OK);
    Ok((status, desk.standing()))
}

fn percent(bytes: u64, total: Option<u64>) -> u8 {
    let share = match total {
        Some(total) if total > 0 => u128::from(bytes) * 100 / u128::from(total),
        _ => 0,
    };
    u8::try_from(share.min(100)).expect("at most 100")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_never_leaves_its_bounds() {
        assert_eq!(percent(0, None), 0);
        assert_eq!(percent(5, Some(0)), 0);
        assert_eq!(percent(999, Some(1000)), 99);
        assert_eq!(percent(u64::MAX, Some(u64::MAX)), 100);
        assert_eq!(percent(7, Some(5)), 100);
    }

    #[test]
    fn counters_show_what_was_told() {
        let tally = Tally::default();
        tally.expect_total(200);
        tally.reach(50);
        tally.receive(30);
        tally.enter(ImportPhase::Verifying);
        let progress = tally.progress();
        assert_eq!((progress.bytes, progress.received, progress.percent), (50, 30, 25));
        assert_eq!(progress.phase, ImportPhase::Verifying);
        assert!(!tally.download_started());
    }
}
