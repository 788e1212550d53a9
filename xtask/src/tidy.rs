//! Rules of the workspace that no compiler knows. Each check gives its problems as lines that say what to change.

mod cases;
mod clocks;
mod layers;
mod licence;
mod sizes;
mod supply;
mod transport;
mod writers;

use crate::metadata::Metadata;
use crate::repository;

/// What a check found: nothing when all is well.
type Problems = Vec<String>;

/// Runs every check; sizes are told but fail nothing.
///
/// # Errors
/// When a check finds a problem, or a file cannot be read.
pub fn run() -> anyhow::Result<()> {
    let metadata = Metadata::read()?;
    let sources = repository::sources()?;
    let checks: [(&str, Problems); 6] = [
        ("layers", layers::check(&metadata)),
        ("writers", writers::check(&sources)),
        ("clocks", clocks::check(&sources)),
        ("transport", transport::check(&sources)),
        ("cases", cases::check(&repository::read("tests/CASES.md")?, &sources)),
        ("supply", supply::check(&metadata, &repository::read("deny.toml")?)?),
    ];
    let mut found = 0;
    for (name, problems) in &checks {
        println!(
            "{name}: {}",
            if problems.is_empty() {
                "ok".to_owned()
            } else {
                format!("{} problems", problems.len())
            }
        );
        problems.iter().for_each(|problem| println!("  {problem}"));
        found += problems.len();
    }
    for warning in sizes::warnings(&sources) {
        println!("warning: {warning}");
    }
    anyhow::ensure!(found == 0, "tidy found {found} problems");
    Ok(())
}
