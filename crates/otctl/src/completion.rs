//! What a shell asks while somebody types: commands, flags, and names of objects. The engine is clap's; here is how it
//! is reached, and which names there are.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::Shells;
use kube::api::ListParams;

use crate::cli::{Cli, ClusterArgs};
use crate::kind::{self, KINDS, Kind};
use crate::{client, out};

/// In this variable a script of ours says which shell it is.
const VARIABLE: &str = "OTCTL_COMPLETE";
/// What the program is called in a shell.
const NAME: &str = "otctl";
/// The name under which kubectl asks for completions of `kubectl otctl`.
const PLUGIN: &str = "kubectl_complete-otctl";
/// Whoever types waits no longer for names.
const PATIENCE: Duration = Duration::from_secs(2);
/// What may stand in front of a command, and takes the word behind it.
const VALUED: [&str; 4] = ["-n", "--namespace", "--kubeconfig", "--context"];
/// More names than anybody reads are not asked for.
const MOST_NAMES: u32 = 500;

/// Answers a shell or kubectl, if this is what the program was started for.
pub(crate) fn is_answered() -> bool {
    let words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().and_then(|called| Path::new(called).file_name());
    if called == Some(OsStr::new(PLUGIN)) {
        out::text(&for_kubectl(words));
        return true;
    }
    // Ends the process when a script asks.
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).bin(NAME).complete();
    false
}

/// The script that makes a shell ask this program.
pub(crate) fn script(shell: clap_complete::Shell) -> io::Result<String> {
    let shell = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).ok_or_else(|| io::Error::other(shell.clone()))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    String::from_utf8(script).map_err(io::Error::other)
}

/// One candidate a line, and how kubectl is to go on: it names no files, and adds no space after a `/`.
fn for_kubectl(mut words: Vec<OsString>) -> String {
    const NO_SPACE: u8 = 2;
    const NO_FILES: u8 = 4;
    let last = words.len() - 1;
    words[0] = NAME.into();
    let found = complete(&mut Cli::command(), words, last, None).unwrap_or_default();
    let ends_open = |found: &CompletionCandidate| {
        found.get_value().to_str().is_some_and(|value| value.ends_with('/'))
    };
    let space = if found.iter().any(ends_open) { NO_SPACE } else { 0 };
    let lines = found.iter().map(|found| {
        let help = found.get_help().map(|help| format!("\t{help}")).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        format!("{}{help}\n", found.get_value().to_string_lossy())
    });
    lines.chain([format!(":{}\n", NO_FILES | space)]).collect()
}

/// Kinds, and once one is there, its names.
pub(crate) fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<String> =
        std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let candidates = match current.split_once('/') {
        Some((named, _)) => {
            let found = kind::named(named).map(|kind| names(kind, &words)).unwrap_or_default();
            found.into_iter().map(|name| format!("{named}/{name}")).collect()
        }
        None => match named_before(&words) {
            Some(kind) => names(kind, &words),
            None => KINDS.iter().map(|kind| kind.names()[0].to_owned()).collect(),
        },
    };
    let candidates = candidates.into_iter().filter(|candidate| candidate.starts_with(current));
    candidates.map(CompletionCandidate::new).collect()
}

/// The kind among the words before the one that is typed.
fn named_before(words: &[String]) -> Option<&'static dyn Kind> {
    let (_, before) = words.split_last()?;
    let is_value = |index: usize| index > 0 && VALUED.contains(&before[index - 1].as_str());
    let mut spoken = before.iter().enumerate().filter(|(index, _)| !is_value(*index));
    spoken.find_map(|(_, word)| kind::named(word))
}

/// Names of objects, of the cluster and namespace that the words lead to; none if it does not answer.
fn names(kind: &'static dyn Kind, words: &[String]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = async { tokio::time::timeout(PATIENCE, listed(kind, words)).await };
    let found = runtime.map(|runtime| runtime.block_on(asked));
    found.ok().and_then(Result::ok).and_then(Result::ok).unwrap_or_default()
}

async fn listed(kind: &'static dyn Kind, words: &[String]) -> anyhow::Result<Vec<String>> {
    let args = ClusterArgs {
        kubeconfig: flag(words, "--kubeconfig", None).map(Into::into),
        context: flag(words, "--context", None),
    };
    let cluster = client::connect(&args).await?;
    let namespace = flag(words, "--namespace", Some("-n")).unwrap_or(cluster.namespace.clone());
    let api = kind.api(&cluster.client, Some(&namespace));
    let found = api.list_metadata(&ListParams::default().limit(MOST_NAMES)).await?;
    Ok(found.items.into_iter().filter_map(|item| item.metadata.name).collect())
}

/// The value of a flag on a command line that is not finished, so that nobody else can read it.
fn flag(words: &[String], long: &str, short: Option<&str>) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == long || short == Some(word) {
            return words.next().cloned();
        }
        let joined = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let joined = joined.or_else(|| short.and_then(|short| word.strip_prefix(short)));
        if let Some(value) = joined {
            return Some(value.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_flag_is_read_in_each_of_its_forms() {
        let cases = [
            ("otctl get -n lab ", Some("lab")),
            ("otctl -n lab get ", Some("lab")),
            ("otctl get -nlab ", Some("lab")),
            ("otctl get --namespace lab ", Some("lab")),
            ("otctl get --namespace=lab ", Some("lab")),
            ("otctl get vmdi ", None),
            ("otctl get --name lab", None),
        ];
        for (line, expected) in cases {
            let found = flag(&words(line), "--namespace", Some("-n"));
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_kind_is_found_before_the_word_that_is_typed() {
        assert!(named_before(&words("otctl describe vmdi a")).is_some());
        assert!(named_before(&words("otctl describe vmdi")).is_none());
        assert!(named_before(&words("otctl -n ws describe ")).is_none());
        assert!(named_before(&words("otctl -n ws describe vmdi ")).is_some());
    }

    #[test]
    fn kubectl_is_told_commands_kinds_and_how_to_go_on() {
        let told = |line: &str| for_kubectl(line.split(' ').map(OsString::from).collect());
        let commands = told("kubectl_complete-otctl ");
        assert!(commands.contains("wait\tWait until") && commands.ends_with(":4\n"), "{commands}");
        assert!(!commands.contains("run-importer"), "{commands}");
        assert!(told("kubectl_complete-otctl wait --f").contains("--for\t"));
        assert!(told("kubectl_complete-otctl -n lab wait --f").contains("--for\t"));
        assert!(told("kubectl_complete-otctl -n lab des").contains("describe\t"));
        assert!(told("kubectl_complete-otctl --cont").contains("--context\t"));
        assert_eq!(
            told("kubectl_complete-otctl wait --for av"),
            "available\tThere is something to use, of this spec or of an earlier one; for a workspace the same as ready\n:4\n"
        );
    }

    #[test]
    fn there_is_a_script_for_every_shell() {
        for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
            let script = script(*shell).unwrap();
            assert!(script.contains(VARIABLE) && script.contains(NAME), "{shell}: {script}");
        }
    }
}
