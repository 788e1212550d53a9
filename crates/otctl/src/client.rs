//! The way into the cluster that the flags name.

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::ClusterArgs;

/// A client for the cluster that the flags name, else the current one.
pub(crate) async fn connect(args: &ClusterArgs) -> anyhow::Result<Client> {
    let config = config(args).await.context("no cluster: the kubeconfig cannot be used")?;
    Client::try_from(config).context("no client can be made from the kubeconfig")
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
