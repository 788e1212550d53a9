//! What a container's process is started with: program, arguments, environment, files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::NodeContext;
use super::environment::{self, Environment, expand};
use super::hosts;
use super::images::Image;
use super::mounts::{Mount, NotYet, rewrite};

const DEFAULT_TERMINATION_LOG: &str = "/dev/termination-log";

/// The address that a program must listen on: the pod's own.
pub const ADDRESS_VARIABLE: &str = "OTCTL_ADDRESS";
/// The TCP ports that the container names, with commas; absent if it names none.
pub const PORTS_VARIABLE: &str = "OTCTL_PORTS";
/// The file that stands for `/etc/hosts`.
pub const HOSTS_VARIABLE: &str = "OTCTL_HOSTS";

/// Everything about a process that is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Environment,
    pub(super) directory: PathBuf,
    pub(super) mounts: Vec<Mount>,
    pub(super) termination_log: PathBuf,
    pub(super) log: PathBuf,
    /// Where the same log stays when the pod's directory is gone.
    pub(super) kept_log: PathBuf,
}

/// Where a pod's files are.
pub(super) fn pod_dir(state_dir: &Path, uid: &str) -> PathBuf {
    state_dir.join("pods").join(uid)
}

/// Where the output of a pod's first container goes.
pub(super) fn log_file(pod_dir: &Path) -> PathBuf {
    pod_dir.join("log")
}

/// Where the output of a pod's first container stays for as long as the cluster does.
pub(super) fn kept_log_file(state_dir: &Path, pod: &Pod) -> PathBuf {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let uid = pod.uid().unwrap_or_default();
    state_dir.join("logs").join(format!("{namespace}_{name}_{uid}.log"))
}

/// The same file for another container than the first of its pod: its name, with the container's in it.
fn for_container(file: &Path, pod: &Pod, container: &Container) -> PathBuf {
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    if first.is_none_or(|first| first.name == container.name) {
        return file.to_owned();
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let extension = file.extension().map(|it| format!(".{}", it.to_string_lossy()));
    file.with_file_name(format!("{stem}_{}{}", container.name, extension.unwrap_or_default()))
}

/// A container whose volumes are there.
pub(super) struct Start<'a> {
    pub(super) context: &'a NodeContext,
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) address: IpAddr,
    pub(super) mounts: &'a [Mount],
}

impl Start<'_> {
    /// Resolves variables and paths for the program of an image.
    pub(super) async fn of(&self, image: &Image) -> Result<Launch, NotYet> {
        let Self { context, pod, container, .. } = self;
        let directory = pod_dir(&context.state_dir, &pod.uid().unwrap_or_default());
        let environment = environment::resolve(context, pod, container, self.address).await?;
        let termination_log = for_container(&directory.join("termination-log"), pod, container);
        let path = container.termination_message_path.as_deref().unwrap_or(DEFAULT_TERMINATION_LOG);
        let mut mounts = self.mounts.to_vec();
        mounts.push(Mount { at: path.to_owned(), host: termination_log.clone() });
        let command = command_line(image, container, &environment);
        let mut arguments = command.into_iter().map(|argument| rewrite(&argument, &mounts));
        Ok(Launch {
            program: arguments
                .next()
                .ok_or_else(|| NotYet::config("the node has no program to start"))?,
            arguments: arguments.collect(),
            environment: host_environment(pod, environment, &mounts),
            log: for_container(&log_file(&directory), pod, container),
            kept_log: for_container(&kept_log_file(&context.state_dir, pod), pod, container),
            directory,
            mounts,
            termination_log,
        })
    }

    /// What a program must be told that in a network namespace is simply so.
    pub(super) fn network(&self, directory: &Path) -> Result<Environment, NotYet> {
        let hosts = directory.join("hosts");
        std::fs::write(&hosts, hosts::file(self.pod, self.address))
            .map_err(|error| NotYet::config(error.to_string()))?;
        let ports = self.container.ports.iter().flatten();
        let ports = ports.filter(|port| port.protocol.as_deref().is_none_or(|it| it == "TCP"));
        let ports: Vec<_> = ports.map(|port| port.container_port.to_string()).collect();
        let mut variables = Environment::from([
            (ADDRESS_VARIABLE.to_owned(), self.address.to_string()),
            (HOSTS_VARIABLE.to_owned(), hosts.display().to_string()),
        ]);
        if !ports.is_empty() {
            variables.insert(PORTS_VARIABLE.to_owned(), ports.join(","));
        }
        Ok(variables)
    }
}

/// The image's program instead of `command[0]`, then the rest of the command and the arguments.
fn command_line(image: &Image, container: &Container, environment: &Environment) -> Vec<String> {
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let (command, own) = (words(&container.command), words(&container.args));
    let mut line = image.program.clone();
    if command.is_empty() && own.is_empty() {
        line.extend(image.arguments.iter().cloned());
    }
    let own = command.iter().skip(1).chain(&own);
    line.extend(own.map(|argument| expand(argument, environment)));
    line
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

    fn line(image: &Image, container: serde_json::Value) -> Vec<String> {
        let container: Container = serde_json::from_value(container).expect("a container");
        let environment = Environment::from([("URL".to_owned(), "http://h/a".to_owned())]);
        command_line(image, &container, &environment)
    }

    #[test]
    fn the_program_replaces_only_the_first_word_of_the_command() {
        let importer = Image::new(["otctl", "run-importer"]);
        let container = serde_json::json!({
            "name": "c", "command": ["/disk-importer", "import"], "args": ["--url=$(URL)", "--x"],
        });
        let wanted = ["otctl", "run-importer", "import", "--url=http://h/a", "--x"];
        assert_eq!(line(&importer, container), wanted);
    }

    #[test]
    fn an_images_arguments_count_where_the_container_says_nothing() {
        let server = Image::new(["server"]).with_arguments(["--port=80"]);
        let cases = [
            (serde_json::json!({"name": "c"}), vec!["server", "--port=80"]),
            (serde_json::json!({"name": "c", "args": ["--x"]}), vec!["server", "--x"]),
            (serde_json::json!({"name": "c", "command": ["serve"]}), vec!["server"]),
        ];
        for (container, wanted) in cases {
            assert_eq!(line(&server, container), wanted);
        }
    }

    #[test]
    fn only_other_containers_than_the_first_have_files_of_their_own() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        }))
        .expect("a pod");
        let files = |file: &str| {
            let containers = &pod.spec.as_ref().expect("a spec").containers;
            [0, 1].map(|at| for_container(Path::new(file), &pod, &containers[at]))
        };
        assert_eq!(files("/d/log"), ["/d/log", "/d/log_b"].map(PathBuf::from));
        assert_eq!(files("/d/n_p_u.log"), ["/d/n_p_u.log", "/d/n_p_u_b.log"].map(PathBuf::from));
    }
}
