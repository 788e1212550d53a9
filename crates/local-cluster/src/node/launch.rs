//! What a pod's process is started with: program, arguments, environment, files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::environment::{self, Environment, expand};
use super::mounts::{self, Mount, NotYet, rewrite};
use super::{IMPORTER, NodeContext};

const DEFAULT_TERMINATION_LOG: &str = "/dev/termination-log";

/// Everything about a process that is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Environment,
    pub(super) directory: PathBuf,
    pub(super) termination_log: PathBuf,
    pub(super) log: PathBuf,
    /// Where the same log stays when the pod's directory is gone.
    pub(super) kept_log: PathBuf,
}

/// Where a pod's files are.
pub(super) fn pod_dir(state_dir: &Path, uid: &str) -> PathBuf {
    state_dir.join("pods").join(uid)
}

/// Where the output of a pod's process goes.
pub(super) fn log_file(pod_dir: &Path) -> PathBuf {
    pod_dir.join("log")
}

/// Where the output of a pod's process stays for as long as the cluster does.
fn kept_log_file(state_dir: &Path, pod: &Pod) -> PathBuf {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let uid = pod.uid().unwrap_or_default();
    state_dir.join("logs").join(format!("{namespace}_{name}_{uid}.log"))
}

/// The container of a pod that runs as a real process: its first one, if it starts the importer by
/// its command or, having none, by the name of its image.
pub(super) fn process_container(pod: &Pod) -> Option<&Container> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let last_part = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let program = match container.command.as_ref().and_then(|command| command.first()) {
        Some(command) => last_part(command),
        None => last_part(container.image.as_deref()?)
            .and_then(|image| image.split([':', '@']).next().map(str::to_owned)),
    };
    (program.as_deref() == Some(IMPORTER)).then_some(container)
}

/// Resolves volumes and variables, and makes the pod's directory.
pub(super) async fn prepare(
    context: &NodeContext,
    pod: &Pod,
    container: &Container,
    pod_ip: IpAddr,
) -> Result<Launch, NotYet> {
    let directory = pod_dir(&context.state_dir, &pod.uid().unwrap_or_default());
    std::fs::create_dir_all(&directory).map_err(|error| NotYet::volume(error.to_string()))?;
    let mut mounts = mounts::resolve(context, pod, container, &directory).await?;
    let environment = environment::resolve(context, pod, container, pod_ip).await?;
    let termination_log = directory.join("termination-log");
    let path = container.termination_message_path.as_deref().unwrap_or(DEFAULT_TERMINATION_LOG);
    mounts.push(Mount { at: path.to_owned(), host: termination_log.clone() });
    let command = command_line(&context.program, container, &environment);
    let mut arguments = command.into_iter().map(|argument| rewrite(&argument, &mounts));
    Ok(Launch {
        program: arguments
            .next()
            .ok_or_else(|| NotYet::config("the node has no program to start"))?,
        arguments: arguments.collect(),
        environment: host_environment(pod, environment, &mounts),
        log: log_file(&directory),
        kept_log: kept_log_file(&context.state_dir, pod),
        directory,
        termination_log,
    })
}

/// The node's program instead of `command[0]`, then the rest of the command and the arguments.
fn command_line(
    program: &[String],
    container: &Container,
    environment: &Environment,
) -> Vec<String> {
    let own = container.command.iter().flatten().skip(1).chain(container.args.iter().flatten());
    program.iter().cloned().chain(own.map(|argument| expand(argument, environment))).collect()
}

/// A process starts with what the container says and the two variables every container has.
fn host_environment(pod: &Pod, own: Environment, mounts: &[Mount]) -> Environment {
    let mut environment = Environment::from([("HOSTNAME".to_owned(), pod.name_any())]);
    if let Ok(path) = std::env::var("PATH") {
        environment.insert("PATH".to_owned(), path);
    }
    environment.extend(own.into_iter().map(|(name, value)| (name, rewrite(&value, mounts))));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(command: Option<&str>, image: &str) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": image, "command": command.map(|c| vec![c])}]},
        }))
        .expect("a pod")
    }

    #[test]
    fn the_importer_is_known_by_its_command_or_its_image() {
        let cases = [
            (Some("/usr/local/bin/disk-importer"), "any", true),
            (Some("disk-importer"), "any", true),
            (Some("/bin/sh"), "ghcr.io/x/disk-importer:1", false),
            (None, "ghcr.io/x/disk-importer:1@sha256:00", true),
            (None, "localhost:5000/disk-importer", true),
            (None, "ghcr.io/x/disk-importer-debug:1", false),
            (Some("my-disk-importer"), "any", false),
        ];
        for (command, image, wanted) in cases {
            assert_eq!(
                process_container(&pod(command, image)).is_some(),
                wanted,
                "{command:?} {image}"
            );
        }
    }

    #[test]
    fn the_program_replaces_only_the_first_word_of_the_command() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "c", "command": ["/disk-importer", "import"], "args": ["--url=$(URL)", "--x"],
        }))
        .expect("a container");
        let environment = Environment::from([("URL".to_owned(), "http://h/a".to_owned())]);
        let program = ["otctl".to_owned(), "run-importer".to_owned()];
        let line = command_line(&program, &container, &environment);
        assert_eq!(line, ["otctl", "run-importer", "import", "--url=http://h/a", "--x"]);
    }
}
