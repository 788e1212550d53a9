//! The way into the cluster that the flags name, and what its refusals mean.

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
    /// The namespace of whoever names none.
    pub(crate) namespace: String,
}

/// The cluster that the flags name, else the current one.
pub(crate) async fn connect(args: &ClusterArgs) -> anyhow::Result<Cluster> {
    let config = config(args).await.with_context(|| match &args.context {
        Some(context) => format!("no cluster: the kubeconfig says none for context '{context}'"),
        None => {
            "no cluster: name a kubeconfig with --kubeconfig or the variable KUBECONFIG".to_owned()
        }
    })?;
    let address = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).context("no client can be made from the kubeconfig")?;
    Ok(Cluster { client, address, namespace })
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

impl Cluster {
    /// What went wrong with a request, and where if nobody answered.
    pub(crate) fn explained(&self, error: kube::Error) -> anyhow::Error {
        let is_answer = matches!(error, kube::Error::Api(_));
        let told = explained(error);
        if is_answer {
            return told;
        }
        told.context(format!("the API server at {} cannot be asked", self.address))
    }
}

/// A refusal, with the way out where there is one that its words do not tell.
pub(crate) fn explained(error: kube::Error) -> anyhow::Error {
    match &error {
        _ if lacks_kind(&error) => anyhow::anyhow!(
            "the cluster does not have this kind; `otctl crds --apply` installs those of otctl"
        ),
        kube::Error::Api(answer) if answer.code == 401 => anyhow::anyhow!(
            "the API server does not know these credentials; log in again, or name another --context"
        ),
        _ => anyhow::Error::new(error),
    }
}

/// Whether the API server serves no such kind. Of an object that is not there it says more than that.
pub(crate) fn lacks_kind(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(answer) if answer.code == 404 && answer.details.is_none())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;

    fn told(status: Status) -> String {
        crate::out::causes(&explained(kube::Error::Api(status.boxed())))
    }

    #[test]
    fn a_kind_that_is_missing_is_told_from_an_object_that_is() {
        let kind = Status::failure("404 page not found", "").with_code(404);
        assert!(told(kind).contains("otctl crds --apply"));
        let details: StatusDetails = serde_json::from_str(r#"{"name": "web"}"#).unwrap();
        let object = Status::failure("vmdiskimages \"web\" not found", "NotFound");
        let object = object.with_code(404).with_details(details);
        assert_eq!(told(object), "vmdiskimages \"web\" not found");
    }

    #[test]
    fn credentials_that_are_refused_are_told_with_the_way_out() {
        let status = Status::failure("Unauthorized", "Unauthorized").with_code(401);
        assert!(told(status).contains("log in again"));
    }
}
