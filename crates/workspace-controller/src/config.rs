//! Settings of this controller: flags and environment, parsed once.

mod labels;

use clap::Args;
use ipnet::IpNet;

pub use self::labels::{Labels, LabelsError, PodSelection};

/// What an administrator sets on the Deployment. Limits are not here: they are policy.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Namespace of Workspaces that name none. It is one of `--namespaces`, listed or not.
    #[arg(long, env = "OTCTL_DEFAULT_NAMESPACE", value_name = "NAMESPACE")]
    pub default_namespace: String,
    /// Namespaces in which Workspaces may be made: those in which the chart gives this controller its rights.
    #[arg(long, env = "OTCTL_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Namespace of the cluster's DNS, which isolated workspaces may ask.
    #[arg(
        long,
        env = "OTCTL_DNS_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "kube-system"
    )]
    pub dns_namespace: String,
    /// Labels of the pods of the cluster's DNS.
    #[arg(
        long,
        env = "OTCTL_DNS_POD_LABELS",
        value_name = "LABELS",
        default_value = "k8s-app=kube-dns"
    )]
    pub dns_pod_labels: Labels,
    /// Port on which those pods answer, UDP and TCP.
    #[arg(long, env = "OTCTL_DNS_PORT", value_name = "PORT", default_value_t = 53)]
    pub dns_port: u16,
    /// Addresses at which DNS answers besides, such as 169.254.20.10/32 of a cache on each node; may be repeated.
    #[arg(long = "dns-cidr", env = "OTCTL_DNS_CIDRS", value_name = "CIDR", value_delimiter = ',')]
    pub dns_cidrs: Vec<IpNet>,
    /// Pods that may reach every workspace, such as an ingress controller's: labels of their namespaces, and after a
    /// slash labels of the pods: kubernetes.io/metadata.name=ingress/app=nginx. Without it nobody may.
    #[arg(long, env = "OTCTL_INGRESS_SELECTOR", value_name = "LABELS[/LABELS]")]
    pub ingress_selector: Option<PodSelection>,
}

impl Settings {
    /// The namespaces in which Workspaces may be made, each once.
    pub fn served_namespaces(&self) -> Vec<String> {
        let all = self.namespaces.iter().chain([&self.default_namespace]);
        let mut names: Vec<_> = all.map(|name| name.trim().to_owned()).collect();
        names.retain(|name| !name.is_empty());
        names.sort();
        names.dedup();
        names
    }
}

/// Where this controller works: its settings, and the namespace of the installation, in which nobody else does.
#[derive(Clone, Debug)]
pub struct Site {
    /// Settings of the Deployment.
    pub settings: Settings,
    /// Namespace of the installation.
    pub installation: String,
}

impl Site {
    /// Why no Workspace is made in `namespace`.
    pub fn problem_of_namespace(&self, namespace: &str) -> Option<String> {
        problem_of_namespace(&self.settings, namespace, &self.installation)
    }
}

/// Why no Workspace is made in `namespace`, as a sentence that says what to write instead. `installation` is the namespace
/// of the controller itself.
pub fn problem_of_namespace(
    settings: &Settings,
    namespace: &str,
    installation: &str,
) -> Option<String> {
    let served = settings.served_namespaces();
    let allowed = served.iter().filter(|name| !is_closed(name, installation));
    let names: Vec<_> = allowed.map(String::as_str).collect();
    let why = if namespace == installation {
        "is the installation's own"
    } else if namespace.starts_with("kube-") {
        "belongs to Kubernetes"
    } else if served.iter().any(|name| name == namespace) {
        return None;
    } else {
        "is not one that the controller's chart lists"
    };
    let instead = match names.as_slice() {
        [] => "its administrator has to list one".to_owned(),
        names => format!("create the Workspace anew in one of: {}", names.join(", ")),
    };
    Some(format!("namespace {namespace} {why}; {instead}"))
}

/// A namespace in which no Workspace is ever made, listed or not.
fn is_closed(namespace: &str, installation: &str) -> bool {
    namespace == installation || namespace.starts_with("kube-")
}

/// The settings of a small installation.
#[cfg(test)]
pub(crate) fn fixture() -> Settings {
    parse(&["--default-namespace=labs", "--namespaces=labs,exams"]).expect("constants")
}

#[cfg(test)]
fn parse(flags: &[&str]) -> Result<Settings, clap::Error> {
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        settings: Settings,
    }

    let program = std::iter::once(&"workspace-controller");
    Program::try_parse_from(program.chain(flags)).map(|program| program.settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(namespace: &str, expected: Option<&str>) {
        let settings = parse(&["--default-namespace=labs", "--namespaces=exams,kube-labs,otctl"]);
        let problem = problem_of_namespace(&settings.unwrap(), namespace, "otctl");
        assert_eq!(problem.as_deref(), expected, "{namespace}");
    }

    #[test]
    fn workspaces_are_made_where_the_chart_says_so_and_nowhere_else() {
        check("labs", None);
        check("exams", None);
        check(
            "other",
            Some(
                "namespace other is not one that the controller's chart lists; create the Workspace anew in one of: exams, labs",
            ),
        );
        check(
            "otctl",
            Some(
                "namespace otctl is the installation's own; create the Workspace anew in one of: exams, labs",
            ),
        );
        for name in ["kube-system", "kube-labs"] {
            let told = format!(
                "namespace {name} belongs to Kubernetes; create the Workspace anew in one of: exams, labs"
            );
            check(name, Some(&told));
        }
    }

    #[test]
    fn an_installation_that_serves_nothing_says_who_can_change_that() {
        let settings = parse(&["--default-namespace=otctl"]).unwrap();
        let problem = problem_of_namespace(&settings, "labs", "otctl").unwrap();
        assert!(problem.ends_with("; its administrator has to list one"), "{problem}");
    }

    #[test]
    fn an_empty_list_lists_nothing() {
        let settings = parse(&["--default-namespace=labs", "--namespaces="]).unwrap();
        assert_eq!(settings.served_namespaces(), ["labs"]);
    }

    #[test]
    fn what_is_not_said_is_as_most_clusters_have_it() {
        let settings = fixture();
        assert_eq!((settings.dns_namespace.as_str(), settings.dns_port), ("kube-system", 53));
        assert_eq!(settings.dns_pod_labels, "k8s-app=kube-dns".parse().unwrap());
        assert!(settings.dns_cidrs.is_empty() && settings.ingress_selector.is_none());
    }

    #[test]
    fn addresses_are_repeated_or_listed() {
        let cidrs = |flags: &[&str]| {
            let flags: Vec<_> = ["--default-namespace=labs"].iter().chain(flags).copied().collect();
            parse(&flags).map(|settings| settings.dns_cidrs.len())
        };
        assert_eq!(cidrs(&["--dns-cidr=169.254.20.10/32", "--dns-cidr=fd00::a/128"]).unwrap(), 2);
        assert_eq!(cidrs(&["--dns-cidr=169.254.20.10/32,fd00::a/128"]).unwrap(), 2);
        assert!(cidrs(&["--dns-cidr=169.254.20.10"]).is_err());
    }
}
