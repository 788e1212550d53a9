//! Every controller as it is installed, a Prometheus that scrapes them, and every expression asked of that. They have no API
//! server: they measure all the same, and what they have to say of their objects and ledgers is nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use otctl_types::names::{DEFAULT_NAMESPACE, WORKSPACE_CONTROLLER};
use serde_json::{Value, json};

use super::documents::{self, Expression, RuleFile};
use super::expression::selectors;
use super::promtool::Tools;
use crate::families::CONTROLLERS;

/// Wide: a machine may be busy with compilers.
const SOON: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Nobody is there.
const NO_API_SERVER: &str = "http://127.0.0.1:1";

/// Scrapes the controllers, and asks for everything that people would see.
///
/// # Errors
/// When a scrape does not follow the conventions, an expression is refused, or one finds nothing that is there.
pub(super) fn run(tools: &Tools, folder: &Path) -> anyhow::Result<()> {
    let programs = CONTROLLERS.iter().map(|it| it.program);
    let controllers: Vec<Controller> =
        programs.map(|program| Controller::start(program, folder)).collect::<Result<_, _>>()?;
    let mut told = BTreeSet::new();
    for controller in &controllers {
        let text = controller.scrape()?;
        let scrape = folder.join(format!("{}.txt", controller.program));
        fs::write(&scrape, &text).with_context(|| format!("cannot write {}", scrape.display()))?;
        tools.check_metrics(&scrape)?;
        told.extend(names(&text));
    }
    let server = Prometheus::start(tools, folder, &controllers)?;
    server.await_samples(tools, controllers.len())?;
    ask_all(tools, &server, &told)
}

fn ask_all(tools: &Tools, server: &Prometheus, told: &BTreeSet<String>) -> anyhow::Result<()> {
    let (rules, dashboards) = (documents::rules()?, documents::dashboards()?);
    for expression in rules.iter().flat_map(RuleFile::expressions) {
        server.ask(tools, &expression)?;
    }
    for dashboard in &dashboards {
        let mut shown = 0;
        for expression in dashboard.expressions() {
            let answer = server.ask(tools, &expression)?;
            let is_due = is_told(&expression, told);
            anyhow::ensure!(!is_due || !answer.is_empty(), "{} shows nothing", expression.place);
            shown += usize::from(!answer.is_empty());
        }
        anyhow::ensure!(shown > 0, "no panel of {} shows anything", dashboard.name());
        println!("{}: {shown} lines of panels show something", dashboard.name());
    }
    println!("{} families scraped", told.len());
    Ok(())
}

/// Whether the controllers tell all that is asked for. A comparison may leave nothing of it.
fn is_told(expression: &Expression, told: &BTreeSet<String>) -> bool {
    let family = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        parts.into_iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned()
    };
    let mut asked = selectors(&expression.text).into_iter();
    !expression.text.contains(" > ")
        && asked.all(|it| told.contains(&it.name) || told.contains(&family(&it.name)))
}

/// The families of a scrape that have a value.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    types.map(str::to_owned).collect()
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A controller that looks in vain for its API server.
struct Controller {
    _process: Process,
    program: &'static str,
    address: SocketAddr,
}

impl Controller {
    fn start(program: &'static str, folder: &Path) -> anyhow::Result<Self> {
        let cluster = json!({"server": NO_API_SERVER});
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "none",
            "clusters": [{"name": "none", "cluster": cluster}], "users": [{"name": "none", "user": {}}],
            "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        });
        let (config, log) = (folder.join("kubeconfig"), folder.join(format!("{program}.log")));
        fs::write(&config, kubeconfig.to_string())?;
        // To build its program by itself would compile half of what it uses again, with fewer features.
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run-controller", program, "--kubeconfig"]).arg(&config);
        if program == WORKSPACE_CONTROLLER {
            command.arg("--default-namespace=labs");
        }
        command.args(["--leader-election=false", "--listen=127.0.0.1:0", "--log-format=json"]);
        let process = start(&mut command, &log)?;
        let address = wait("the controller to listen", &log, || listens(&log))?;
        Ok(Self { _process: process, program, address })
    }

    fn scrape(&self) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: xtask\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer to /metrics")?;
        anyhow::ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Ok(body.to_owned())
    }
}

/// A server that scrapes the controllers.
struct Prometheus {
    _process: Process,
    url: String,
    log: PathBuf,
}

impl Prometheus {
    fn start(tools: &Tools, folder: &Path, targets: &[Controller]) -> anyhow::Result<Self> {
        let (config, log, data) =
            (folder.join("prometheus.yaml"), folder.join("prometheus.log"), folder.join("data"));
        let rules: Vec<_> = documents::rules()?.into_iter().map(|file| file.path).collect();
        let jobs: Vec<Value> = targets.iter().map(job).collect();
        let settings = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": rules, "scrape_configs": jobs,
        });
        fs::write(&config, settings.to_string())?;
        // Free when it is asked for; another that takes it in this moment makes the start fail, and says so.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(&tools.prometheus);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.args([format!("--web.listen-address={address}"), "--log.level=warn".to_owned()]);
        let process = start(&mut command, &log)?;
        Ok(Self { _process: process, url: format!("http://{address}"), log })
    }

    /// A rate needs two samples.
    fn await_samples(&self, tools: &Tools, targets: usize) -> anyhow::Result<()> {
        let scraped = format!("count(count_over_time(otctl_leader[1m]) >= 3) == {targets}");
        wait("three scrapes of each", &self.log, || {
            tools.ask(&self.url, &scraped).ok().filter(|answer| !answer.is_empty())
        })?;
        Ok(())
    }

    fn ask(&self, tools: &Tools, expression: &Expression) -> anyhow::Result<String> {
        tools
            .ask(&self.url, &expression.text)
            .with_context(|| format!("{} fails", expression.place))
    }
}

/// What is scraped, with the labels that a ServiceMonitor gives it.
fn job(target: &Controller) -> Value {
    let labels = json!({"namespace": DEFAULT_NAMESPACE});
    let configs = json!([{"targets": [target.address.to_string()], "labels": labels}]);
    json!({"job_name": target.program, "static_configs": configs})
}

fn start(command: &mut Command, log: &Path) -> anyhow::Result<Process> {
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let program = Path::new(command.get_program()).display().to_string();
    command.spawn().map(Process).with_context(|| format!("cannot start {program}"))
}

fn wait<T>(what: &str, log: &Path, mut found: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = found() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            let said = fs::read_to_string(log).unwrap_or_default();
            anyhow::bail!("waited {SOON:?} for {what}; {} says:\n{said}", log.display());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn listens(log: &Path) -> Option<SocketAddr> {
    let log = fs::read_to_string(log).ok()?;
    let line = log.lines().find(|line| line.contains("\"listening\""))?;
    let line: Value = serde_json::from_str(line).ok()?;
    line["address"].as_str()?.parse().ok()
}
