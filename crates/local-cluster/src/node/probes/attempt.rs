//! One attempt of a probe, told in kubelet's words.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::net::TcpStream;

use super::super::environment::Environment;
use super::super::launch::Launch;
use super::super::mounts::rewrite;
use crate::guard::Guard;

const LONGEST_OUTPUT: usize = 10 * 1024;
const MOST_REDIRECTS: usize = 10;

/// What an attempt does.
pub(super) enum Attempt {
    Http {
        client: reqwest::Client,
        url: String,
        headers: HeaderMap,
    },
    Tcp(SocketAddr),
    Exec(Execution),
    /// It fails, always for the same reason.
    Impossible(String),
}

/// A command that is run where the container's process is.
pub(super) struct Execution {
    guard: Arc<Guard>,
    command: Vec<String>,
    environment: Environment,
    directory: PathBuf,
    output: PathBuf,
}

impl Attempt {
    /// What `probe` asks of a container at this address.
    pub(super) fn of(
        (name, probe): (&str, &Probe),
        container: &Container,
        address: IpAddr,
        (launch, guard): (&Launch, &Arc<Guard>),
    ) -> Self {
        if let Some(http) = &probe.http_get {
            return match port(&http.port, container) {
                Ok(port) => Self::http(http, &address.to_string(), port),
                Err(message) => Self::Impossible(message),
            };
        }
        if let Some(tcp) = &probe.tcp_socket {
            return match port(&tcp.port, container) {
                Ok(port) => Self::Tcp(SocketAddr::new(address, port)),
                Err(message) => Self::Impossible(message),
            };
        }
        if let Some(exec) = &probe.exec {
            let command = exec.command.iter().flatten().map(|word| rewrite(word, &launch.mounts));
            return Self::Exec(Execution {
                guard: guard.clone(),
                command: command.collect(),
                environment: launch.environment.clone(),
                directory: launch.directory.clone(),
                output: launch.directory.join(format!("{}-{name}", container.name)),
            });
        }
        Self::Impossible("this kind of probe is not supported by process nodes".to_owned())
    }

    fn http(http: &HTTPGetAction, address: &str, port: u16) -> Self {
        if http.scheme.as_deref() == Some("HTTPS") {
            return Self::Impossible(
                "HTTPS is not supported by probes of process nodes".to_owned(),
            );
        }
        let host = http.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(address);
        let path = http.path.as_deref().unwrap_or("/");
        let url = format!("http://{host}:{port}/{}", path.trim_start_matches('/'));
        match (client(), headers(http)) {
            (Ok(client), Ok(headers)) => Self::Http { client, url, headers },
            (Err(message), _) | (_, Err(message)) => Self::Impossible(message),
        }
    }

    /// What went wrong, if anything did.
    pub(super) async fn run(&self, timeout: Duration) -> Result<(), String> {
        match self {
            Self::Http { client, url, headers } => {
                let request = client.get(url).headers(headers.clone()).timeout(timeout);
                judge(url, request.send().await.map(|answer| answer.status().as_u16()))
            }
            Self::Tcp(address) => {
                let problem = match tokio::time::timeout(timeout, TcpStream::connect(address)).await
                {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(error)) => format!("connect: {}", in_go(&error)),
                    Err(_) => "i/o timeout".to_owned(),
                };
                Err(format!("dial tcp {address}: {problem}"))
            }
            Self::Exec(execution) => execution.run(timeout).await,
            Self::Impossible(message) => Err(message.clone()),
        }
    }
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
        let name = match port {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(name) => name.clone(),
        };
        format!("couldn't find port: \"{name}\" on container \"{}\"", container.name)
    })
}

/// One connection per attempt, redirects on the same host only: as kubelet's.
fn client() -> Result<reqwest::Client, String> {
    // An error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let same_host = reqwest::redirect::Policy::custom(|next| {
        let first = next.previous().first().and_then(|url| url.host_str());
        let stays = first == next.url().host_str() && next.previous().len() <= MOST_REDIRECTS;
        if stays { next.follow() } else { next.stop() }
    });
    reqwest::Client::builder()
        .user_agent("kube-probe/1.34")
        .pool_max_idle_per_host(0)
        .redirect(same_host)
        .no_proxy()
        .build()
        .map_err(|error| error.to_string())
}

fn headers(http: &HTTPGetAction) -> Result<HeaderMap, String> {
    let own = http.http_headers.iter().flatten().map(|header| {
        let name: HeaderName = header.name.parse().map_err(|_| header.name.clone())?;
        let value: HeaderValue = header.value.parse().map_err(|_| header.name.clone())?;
        Ok((name, value))
    });
    let own: Result<HeaderMap, String> = own.collect();
    own.map_err(|name| format!("header {name} cannot be sent"))
}

fn judge(url: &str, status: Result<u16, reqwest::Error>) -> Result<(), String> {
    match status {
        Ok(200..=399) => Ok(()),
        Ok(status) => Err(format!("HTTP probe failed with statuscode: {status}")),
        Err(error) if error.is_timeout() => Err(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
        Err(error) => Err(format!("Get \"{url}\": {}", cause(url, &error))),
    }
}

fn cause(url: &str, error: &reqwest::Error) -> String {
    let root = std::iter::successors(Some(error as &dyn Error), |error| (*error).source()).last();
    let root = root.unwrap_or(error);
    match root.downcast_ref::<io::Error>() {
        Some(refused) if error.is_connect() => {
            let address = url.split('/').nth(2).unwrap_or_default();
            format!("dial tcp {address}: connect: {}", in_go(refused))
        }
        _ => root.to_string(),
    }
}

fn in_go(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

impl Execution {
    async fn run(&self, timeout: Duration) -> Result<(), String> {
        match tokio::time::timeout(timeout, self.end()).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.said()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "command timed out: {:?} timed out after {timeout:?}",
                self.command.join(" ")
            )),
        }
    }

    /// Whether the command succeeds. Its processes end when this is dropped.
    async fn end(&self) -> io::Result<bool> {
        let output = std::fs::File::create(&self.output)?;
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Guard::command(program, arguments);
        command.env_clear().envs(&self.environment).current_dir(&self.directory);
        command.stdout(output.try_clone()?).stderr(output);
        Ok(self.guard.spawn(command)?.wait().await?.success())
    }

    fn said(&self) -> String {
        let mut said = std::fs::read(&self.output).unwrap_or_default();
        said.truncate(LONGEST_OUTPUT);
        String::from_utf8_lossy(&said).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container() -> Container {
        let ports = json!([{"name": "web", "containerPort": 8080}]);
        serde_json::from_value(json!({"name": "c", "ports": ports})).expect("a container")
    }

    #[test]
    fn a_port_is_a_number_or_the_name_of_one() {
        let named = |name: &str| port(&IntOrString::String(name.to_owned()), &container());
        assert_eq!(port(&IntOrString::Int(81), &container()), Ok(81));
        assert_eq!((named("web"), named("82")), (Ok(8080), Ok(82)));
        let unknown = "couldn't find port: \"metrics\" on container \"c\"".to_owned();
        assert_eq!(named("metrics"), Err(unknown));
    }

    async fn seen(address: SocketAddr) -> String {
        let action = HTTPGetAction { path: Some("/x".to_owned()), ..HTTPGetAction::default() };
        let attempt = Attempt::http(&action, &address.ip().to_string(), address.port());
        attempt.run(Duration::from_millis(200)).await.expect_err("nobody answers")
    }

    #[tokio::test]
    async fn what_a_server_does_not_answer_is_told_as_kubelet_tells_it() -> io::Result<()> {
        let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
        let (address, nobody) = (silent.local_addr()?, SocketAddr::from(([127, 9, 8, 7], 1)));
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        assert_eq!(seen(address).await, format!("Get \"http://{address}/x\": {late}"));
        let refused = format!("dial tcp {nobody}: connect: connection refused");
        assert_eq!(seen(nobody).await, format!("Get \"http://{nobody}/x\": {refused}"));
        Ok(())
    }
}
