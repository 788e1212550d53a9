//! One page of a list, as the API server sends it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;

/// Without the type fields, which would make serde buffer the whole page.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    pub(crate) items: Vec<T>,
}

impl<T> Page<T> {
    /// Where the next page begins; none on the last one.
    pub(crate) fn next(&self) -> Option<String> {
        self.metadata.continue_.clone().filter(|token| !token.is_empty())
    }
}
