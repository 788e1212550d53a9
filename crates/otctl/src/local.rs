//! The control plane that the demo and `up` run: its nodes with a few container images, the installation with everything
//! that the charts guard, and a stand-in for KubeVirt.

use anyhow::Context as _;
use local_cluster::kubevirt::{KubeVirt, LAUNCHER_IMAGE};
use local_cluster::node::{Image, Images};
use local_cluster::{LocalCluster, Options, Progress};

use crate::cli::LocalArgs;
use crate::installation::{self, Policy, WORKSPACE_NAMESPACE, own_program};
use crate::out;

/// The container images that the examples and the documents name.
pub(crate) const CONTAINER_IMAGES: [&str; 4] =
    [API_SERVER, WEB, "registry.example.com/api-server:3.1.0", "registry.example.com/worker:3.1.0"];
/// Two of them that anything here can use.
pub(crate) const API_SERVER: &str = "my-registry/api-server:3.1.0";
pub(crate) const WEB: &str = "registry.example.com/shop-web:1.4";

/// A control plane whose pods run this program. Its nodes find [`CONTAINER_IMAGES`], `others`, and no more.
pub(crate) async fn start(args: LocalArgs, others: &[String]) -> anyhow::Result<LocalCluster> {
    let options = Options {
        progress: Progress::new(out::line),
        importer: program("run-importer")?,
        images: images(others)?,
        state_dir: args.state_dir,
        ..Options::default()
    };
    LocalCluster::start(options).await.context("the local cluster did not start")
}

/// Installs everything but the controllers. The stand-in for KubeVirt ends with the result.
pub(crate) async fn install(cluster: &LocalCluster, policy: Policy) -> anyhow::Result<KubeVirt> {
    let client = cluster.admin();
    installation::apply(&client, policy, &[WORKSPACE_NAMESPACE]).await?;
    installation::guard(&client).await?;
    cluster.install_kubevirt().await.context("the stand-in for KubeVirt cannot be installed")
}

fn images(others: &[String]) -> anyhow::Result<Images> {
    let program = program("run-container")?;
    // What a container says after its image's name is for the program that should be there.
    let server = Image::new(program.iter().cloned().chain(["--".to_owned()]));
    let names = CONTAINER_IMAGES.into_iter().chain(others.iter().map(String::as_str));
    let images = names.fold(Images::none(), |images, name| images.with(name, server.clone()));
    Ok(images.with(LAUNCHER_IMAGE, Image::new(program)))
}

/// This program in the place of another.
fn program(command: &str) -> anyhow::Result<Vec<String>> {
    Ok(vec![own_program()?.display().to_string(), command.to_owned()])
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn nodes_have_every_image_of_the_examples() {
        for example in [
            include_str!("../../../examples/workspace.yaml"),
            include_str!("../../../examples/workspace-full.yaml"),
        ] {
            let workspace: Value = serde_saphyr::from_str(example).unwrap();
            let containers = workspace["spec"]["containers"].as_array().unwrap();
            for container in containers {
                let image = container["image"].as_str().unwrap();
                assert!(CONTAINER_IMAGES.contains(&image), "{image}");
            }
        }
        let document = include_str!("../../../docs/using-workspaces.md");
        let images = document.lines().filter_map(|line| line.trim().strip_prefix("image: "));
        let unknown: Vec<_> = images.filter(|image| !CONTAINER_IMAGES.contains(image)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
