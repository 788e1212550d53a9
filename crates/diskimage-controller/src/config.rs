//! Settings of this controller: flags and environment, parsed once.

use std::net::IpAddr;

use clap::Args;

/// What an administrator sets on the Deployment. Limits are not here: they are policy.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Image of the import pods; it holds `/disk-importer` and nothing else.
    #[arg(long, env = "OTCTL_IMPORTER_IMAGE", default_value = concat!("ghcr.io/pelotech/otctl/disk-importer:", env!("CARGO_PKG_VERSION")))]
    pub importer_image: String,
    /// When the node pulls it: Always, IfNotPresent or Never.
    #[arg(long, env = "OTCTL_IMPORTER_PULL_POLICY", default_value = "IfNotPresent")]
    pub importer_pull_policy: String,
    /// Memory limit of an import pod, a Kubernetes quantity.
    #[arg(long, env = "OTCTL_IMPORTER_MEMORY", default_value = "256Mi")]
    pub importer_memory: String,
    /// CPU request of an import pod, a Kubernetes quantity.
    #[arg(long, env = "OTCTL_IMPORTER_CPU", default_value = "100m")]
    pub importer_cpu: String,
    /// Port on which an import pod tells its progress.
    #[arg(long, env = "OTCTL_IMPORTER_PORT", default_value_t = 8080)]
    pub importer_port: u16,
    /// Addresses that no import may connect to unless the policy lists their host by name: the API server's.
    #[arg(long, env = "OTCTL_REFUSED_ADDRESSES", value_delimiter = ',')]
    pub refused_addresses: Vec<IpAddr>,
    /// Seconds a finished probe stays, for people to look at. Imports stay until the next attempt begins or none follows.
    #[arg(long, env = "OTCTL_JOB_TTL_SECONDS", default_value_t = 300)]
    pub job_ttl_seconds: i32,
}

/// The settings without any flag.
#[cfg(test)]
pub(crate) fn fixture() -> Settings {
    use clap::Parser;
    crate::Args::parse_from(["diskimage-controller"]).settings
}
