//! Flags that say where, in front of a command: they mean what they mean behind it, as kubectl has it. A command that
//! does not know such a flag behind it refuses it in front too. clap's own global flags would not: every command would
//! take all of them, also those that have no cluster, or no namespace, to look at.

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::{Cli, ClusterArgs, WhereArgs};

/// What a command can be told of where; nothing of what it does not know.
#[derive(Debug, Default)]
pub(super) struct Place<'a> {
    pub(super) cluster: Option<&'a mut ClusterArgs>,
    pub(super) namespace: Option<&'a mut Option<String>>,
    pub(super) all_namespaces: Option<&'a mut bool>,
}

/// Why a command cannot be told what stands in front of it.
type Refusal = (ErrorKind, String);

impl Cli {
    /// Tells the command what stands in front of it. What stands behind it counts more.
    pub(super) fn told(mut self) -> Result<Self, clap::Error> {
        let before = std::mem::take(&mut self.before);
        let told = tell(before, self.command.place());
        told.map_err(|(kind, message)| Self::command().error(kind, message))?;
        Ok(self)
    }
}

fn tell(before: WhereArgs, place: Place<'_>) -> Result<(), Refusal> {
    let WhereArgs { cluster, namespace, all_namespaces } = before;
    let (kubeconfig, context) = match place.cluster {
        Some(place) => (Some(&mut place.kubeconfig), Some(&mut place.context)),
        None => (None, None),
    };
    put(cluster.kubeconfig, kubeconfig, "--kubeconfig")?;
    put(cluster.context, context, "--context")?;
    let is_told_of_one = place.namespace.as_ref().is_some_and(|it| it.is_some());
    let is_told_of_all = place.all_namespaces.as_ref().is_some_and(|it| **it);
    if (all_namespaces && is_told_of_one) || (namespace.is_some() && is_told_of_all) {
        let message =
            "the argument '--namespace <NAMESPACE>' cannot be used with '--all-namespaces'";
        return Err((ErrorKind::ArgumentConflict, message.to_owned()));
    }
    put(namespace, place.namespace, "--namespace")?;
    match place.all_namespaces {
        Some(place) => *place |= all_namespaces,
        None if all_namespaces => return Err(unknown("--all-namespaces")),
        None => {}
    }
    Ok(())
}

fn put<T>(value: Option<T>, place: Option<&mut Option<T>>, flag: &str) -> Result<(), Refusal> {
    match (value, place) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(unknown(flag)),
        (Some(value), Some(place)) => {
            place.get_or_insert(value);
            Ok(())
        }
    }
}

fn unknown(flag: &str) -> Refusal {
    (ErrorKind::UnknownArgument, format!("'{flag}' means nothing to this command"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// Where the command of this line looks, as `kubeconfig context namespace all`, or what is wrong with it.
    #[track_caller]
    fn check(line: &str, expected: Result<&str, &str>) {
        let told = Cli::try_parse_from(line.split(' ')).and_then(Cli::told);
        match (told, expected) {
            (Ok(mut cli), Ok(expected)) => {
                assert_eq!(shown(cli.command.place()), expected, "{line}")
            }
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{line}: {error}");
                assert_eq!(error.exit_code(), 2, "{line}");
            }
            (told, _) => panic!("{line}: {told:?}"),
        }
    }

    fn shown(place: Place<'_>) -> String {
        let cluster = place.cluster.cloned().unwrap_or_default();
        let kubeconfig = cluster.kubeconfig.map(|it| it.display().to_string());
        let namespace = place.namespace.and_then(|it| it.clone());
        let all = place.all_namespaces.filter(|it| **it).map(|_| "all".to_owned());
        let words = [kubeconfig, cluster.context, namespace, all];
        words.map(|word| word.unwrap_or_else(|| "-".to_owned())).join(" ")
    }

    #[test]
    fn what_stands_in_front_means_what_it_means_behind() {
        check("otctl get", Ok("- - - -"));
        check("otctl -n labs get", Ok("- - labs -"));
        check("otctl -nlabs get vmdi", Ok("- - labs -"));
        check("otctl get -n labs", Ok("- - labs -"));
        check("otctl -A get", Ok("- - - all"));
        check("otctl --kubeconfig=k --context c --namespace labs describe ws", Ok("k c labs -"));
        check("otctl --kubeconfig k -n labs wait ws/a --context c", Ok("k c labs -"));
        for command in ["retry ws/a", "suspend ws/a", "resume ws/a", "apply -f a", "queue"] {
            check(&format!("otctl --context c -n labs {command}"), Ok("- c labs -"));
        }
        check("otctl --context c crds --apply", Ok("- c - -"));
    }

    #[test]
    fn what_stands_behind_counts_more() {
        check("otctl -n labs --context a get -n other --context b", Ok("- b other -"));
    }

    #[test]
    fn a_queue_is_of_all_namespaces_anyway() {
        check("otctl queue -A", Ok("- - - all"));
        check("otctl -A queue", Ok("- - - all"));
        check("otctl queue -A -n labs", Err("cannot be used with"));
    }

    #[test]
    fn one_namespace_and_all_of_them_are_not_asked_for_at_once() {
        for line in ["otctl -A -n labs get", "otctl get -A -n labs", "otctl -A get -n labs"] {
            check(line, Err("cannot be used with"));
        }
        check("otctl -n labs get -A", Err("cannot be used with"));
    }

    #[test]
    fn what_means_nothing_to_a_command_is_refused() {
        check("otctl -n labs crds", Err("'--namespace' means nothing to this command"));
        check("otctl -A apply -f a", Err("'--all-namespaces' means nothing to this command"));
        check("otctl --kubeconfig k demo", Err("'--kubeconfig' means nothing to this command"));
        check("otctl --context c completion bash", Err("'--context' means nothing"));
        check("otctl crds -n labs", Err("unexpected argument '-n'"));
    }
}
