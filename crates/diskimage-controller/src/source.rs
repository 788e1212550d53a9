//! What an address says: its host, and what of it may be shown.

use url::Url;

/// The host of an address, the lane of `concurrencyPerHost`.
pub fn host(address: &str) -> Option<String> {
    Url::parse(address).ok()?.host_str().map(str::to_owned)
}
