//! What a run was asked to do, parsed and checked. Where it comes from is `cli`'s matter.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use policy::source_hosts::SourceHosts;
use secrecy::SecretString;
use url::Url;

use crate::bandwidth::Bandwidth;
use crate::connection::Resolver;
use crate::credentials::Credentials;
use crate::sha256::Sum;

/// Where an image is and what may be done to get it.
#[derive(Clone)]
pub struct Source {
    /// Address of the image; without user-info.
    pub url: Url,
    /// How it is spoken to.
    pub source_type: SourceType,
    /// What the source is reached with.
    pub credentials: Credentials,
    /// Which addresses may be connected.
    pub access: Access,
    /// What the image must fit into.
    pub limits: Limits,
    /// How long to wait for what.
    pub timing: Timing,
    /// How fast bytes may be taken.
    pub bandwidth: Bandwidth,
}

/// How to speak to a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SourceType {
    /// A web server; the Secret's keys are a user and a password.
    Http,
    /// An object store; requests are signed with the Secret's keys.
    S3,
}

/// The address rule: the policy's `allowedSourceHosts` and the addresses of the API server.
#[derive(Clone, Debug)]
pub struct Access {
    /// The policy's rule.
    pub hosts: SourceHosts,
    /// Addresses that only a host listed by name may lead to.
    pub api_addresses: Vec<IpAddr>,
    /// Who knows the addresses of a name.
    pub resolver: Resolver,
}

/// What an image must fit into, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The policy's `maxImageSize`, of the source.
    pub image_size: Option<u64>,
    /// The image's `diskSize`; unknown before the probe when spec leaves it out.
    pub disk_size: Option<u64>,
}

/// Waits and their bounds; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Longest a connection may take to stand.
    pub connect: Duration,
    /// Longest without a byte, the answer's first one included.
    pub stall: Duration,
    /// Longest the first look may take in all, however steadily it drips: less than a probe's Job is given, so that the
    /// source is blamed and not the node.
    pub look: Duration,
    /// Wait before the first reconnect; doubles for each further one.
    pub reconnect_first: Duration,
    /// Longest wait before a reconnect.
    pub reconnect_max: Duration,
    /// Reconnects of one run.
    pub reconnects: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            stall: Duration::from_secs(600),
            look: Duration::from_secs(60),
            reconnect_first: Duration::from_secs(1),
            reconnect_max: Duration::from_secs(30),
            reconnects: 20,
        }
    }
}

impl Timing {
    /// How long to wait before reconnect number `count`, counted from 1.
    #[must_use]
    pub fn reconnect_delay(&self, count: u32) -> Duration {
        let factor = 1u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX);
        self.reconnect_first.saturating_mul(factor).min(self.reconnect_max)
    }
}

/// Everything an import needs besides its source.
pub struct Target {
    /// The disk: a file to be made, or a block device to be filled.
    pub output: PathBuf,
    /// Which of the two it is.
    pub volume_mode: VolumeMode,
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// Directory of the scratch volume.
    pub scratch: PathBuf,
    /// UID of this pod, the mark on the scratch volume's lock.
    pub pod_uid: String,
    /// The sum that the source's bytes must have.
    pub checksum: Option<Sum>,
    /// What the probe saw.
    pub expected: Expected,
}

/// Whether a claim is mounted or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum VolumeMode {
    /// A mounted file system.
    #[value(name = "Filesystem")]
    Filesystem,
    /// A raw block device.
    #[value(name = "Block")]
    Block,
}

/// What the probe saw of the source; what it did not see is not compared.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The entity tag.
    pub etag: Option<String>,
    /// The length in bytes.
    pub size: Option<u64>,
}

/// Where progress is served, and to whom.
#[derive(Clone)]
pub struct ProgressEndpoint {
    /// Address to listen on.
    pub address: SocketAddr,
    /// The key that every request must carry.
    pub key: SecretString,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnects_wait_longer_each_time_up_to_the_bound() {
        let timing = Timing::default();
        let delays: Vec<u64> = (1..=20).map(|n| timing.reconnect_delay(n).as_secs()).collect();
        assert_eq!(delays[..7], [1, 2, 4, 8, 16, 30, 30]);
        assert!(delays[7..].iter().all(|delay| *delay == 30));
        assert_eq!(timing.reconnect_delay(u32::MAX).as_secs(), 30);
    }
}
