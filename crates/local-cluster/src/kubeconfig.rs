//! Ways into the cluster: kubeconfig files for programs and client configurations for this one.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use k8s_openapi::{
    ByteString,
    api::authentication::v1::{TokenRequest, TokenRequestSpec},
    api::core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::{Value, json};

use crate::certificates::Identity;

/// How long a service account's token is good for. Longer than any run, since nobody renews it.
const TOKEN_SECONDS: i64 = 7 * 24 * 3600;

/// How a client shows who it is.
#[derive(Clone)]
pub enum Credentials {
    /// A client certificate.
    Certificate(Identity),
    /// A service account's token.
    Token(String),
}

/// Where the API server is, whom to trust, and who one is.
#[derive(Clone)]
pub struct Access {
    /// The server's URL.
    pub server: String,
    /// The certificate of the authority that signed the server's, PEM.
    pub authority: String,
    /// Who one is.
    pub credentials: Credentials,
}

/// Why there is no way into the cluster.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig was not accepted.
    #[error("cannot read our own kubeconfig")]
    ReadKubeconfig(#[from] KubeconfigError),
    /// No client could be made from it.
    #[error("cannot build a client")]
    BuildClient(#[source] kube::Error),
    /// The kubeconfig file cannot be written.
    #[error("cannot write the kubeconfig '{}'", path.display())]
    WriteKubeconfig {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The API server gave no token.
    #[error("cannot get a token for service account '{namespace}/{name}'")]
    RequestToken {
        /// The service account's namespace.
        namespace: String,
        /// The service account's name.
        name: String,
        /// What the API server said, if it refused.
        source: Option<kube::Error>,
    },
}

impl Access {
    /// A client configuration. Its requests are not retried: a test that sees a refusal once sees all of them, and the
    /// controllers under test bring a policy of their own.
    pub async fn config(&self) -> Result<Config, AccessError> {
        let kubeconfig = Kubeconfig::from_yaml(&self.document().to_string())?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.default_retry = false;
        Ok(config)
    }

    /// A client that lives as long as the current runtime.
    pub async fn client(&self) -> Result<Client, AccessError> {
        // An error says that a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::try_from(self.config().await?).map_err(AccessError::BuildClient)
    }

    /// Writes a kubeconfig that holds all it needs; only this user may read it.
    pub fn write(&self, path: &Path) -> Result<(), AccessError> {
        let text = format!("{:#}\n", self.document());
        write_private(path, &text)
            .map_err(|source| AccessError::WriteKubeconfig { path: path.to_owned(), source })
    }

    /// The kubeconfig. JSON is YAML, and every client reads it.
    fn document(&self) -> Value {
        let base64 = |pem: &str| json!(ByteString(pem.as_bytes().to_vec()));
        let user = match &self.credentials {
            Credentials::Certificate(identity) => json!({
                "client-certificate-data": base64(&identity.certificate),
                "client-key-data": base64(&identity.key),
            }),
            Credentials::Token(token) => json!({ "token": token }),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "local",
                "cluster": {
                    "server": self.server,
                    "certificate-authority-data": base64(&self.authority),
                },
            }],
            "users": [{ "name": "local", "user": user }],
            "contexts": [{ "name": "local", "context": { "cluster": "local", "user": "local" } }],
            "current-context": "local",
        })
    }
}

/// Writes a file that only this user may read.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// A token of a service account that exists.
pub(crate) async fn service_account_token(
    admin: Client,
    namespace: &str,
    name: &str,
) -> Result<String, AccessError> {
    let refused = |source| AccessError::RequestToken {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source,
    };
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..Default::default() },
        ..Default::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, namespace);
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(|error| refused(Some(error)))?;
    answer.status.map(|status| status.token).ok_or_else(|| refused(None))
}
