//! Programs that a task runs, in the root of the repository, with their output going where ours goes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::repository;

/// A command that runs in the root.
pub struct Run {
    command: Command,
}

/// Cargo, the one that runs this.
pub fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Run {
    Run::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(arguments)
}

impl Run {
    /// A program by its name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(repository::root()).stdin(Stdio::null());
        Self { command }
    }

    /// With more arguments.
    #[must_use]
    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(arguments);
        self
    }

    /// With a path as the next argument.
    #[must_use]
    pub fn path(mut self, path: &Path) -> Self {
        self.command.arg(path);
        self
    }

    /// With a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// With the text of a file as its standard input.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn input(mut self, path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.command.stdin(file);
        Ok(self)
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it cannot be run or does not succeed.
    pub fn run(mut self) -> anyhow::Result<()> {
        let line = self.line();
        println!("$ {line}");
        let status = self.command.status().with_context(|| format!("cannot run `{line}`"))?;
        anyhow::ensure!(status.success(), "`{line}` ended with {status}");
        Ok(())
    }

    /// Runs it to its end and gives what it wrote to its standard output.
    ///
    /// # Errors
    /// When it cannot be run, does not succeed, or writes something that is not text.
    pub fn output(mut self) -> anyhow::Result<String> {
        let line = self.line();
        let output = self.command.output().with_context(|| format!("cannot run `{line}`"))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "`{line}` ended with {}: {}",
            output.status,
            complaint.trim()
        );
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{line}` wrote something that is not text"))
    }

    /// The command as a person would type it.
    fn line(&self) -> String {
        let mut line = String::new();
        for (name, value) in self.command.get_envs() {
            let _ = write!(line, "{}={} ", name.display(), value.unwrap_or_default().display());
        }
        let program = Path::new(self.command.get_program());
        let _ = write!(line, "{}", program.file_name().unwrap_or_default().display());
        for argument in self.command.get_args() {
            let _ = write!(line, " {}", argument.display());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_named() {
        let error = Run::new("false").args(["--loudly"]).run().unwrap_err();
        assert!(error.to_string().starts_with("`false --loudly` ended with"), "{error}");
    }

    #[test]
    fn output_is_what_was_written() {
        assert_eq!(Run::new("echo").args(["a", "b"]).output().unwrap(), "a b\n");
    }
}
