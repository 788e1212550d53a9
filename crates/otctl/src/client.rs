//! The way into the cluster that the flags name.

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::ClusterArgs;

/// The way in, and where it leads.
pub(crate) struct Cluster {
    /// Makes the requests.
    pub(crate) client: Client,
    /// The API server's address, for what is told when it does not answer.
    pub(crate) address: String,
}

/// The cluster that the flags name, else the current one.
pub(crate) async fn connect(args: &ClusterArgs) -> anyhow::Result<Cluster> {
    let config = config(args)
        .await
        .context("no cluster: name a kubeconfig with --kubeconfig or the variable KUBECONFIG")?;
    let address = config.cluster_url.to_string();
    let client = Client::try_from(config).context("no client can be made from the kubeconfig")?;
    Ok(Cluster { client, address })
}

async fn config(args: &ClusterArgs) -> anyhow::Result<Config> {
    let options =
        KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    Ok(match (&args.kubeconfig, &args.context) {
        (Some(file), _) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await?,
        (None, None) => Config::infer().await?,
    })
}
