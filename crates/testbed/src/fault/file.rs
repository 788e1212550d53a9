//! The file format, and the files of this crate: what must be survived in memory and on a real API server alike.

use std::path::Path;
use std::{fs, io};

use serde::Deserialize;

use super::{Fault, Misfit, Pattern, PatternError, Point, Times, What, When};

/// Why a file holds no faults.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not of the format.
    #[error("cannot read the faults")]
    ReadYaml(#[from] serde_saphyr::Error),
    /// A `when` is no pattern.
    #[error(transparent)]
    ReadPattern(#[from] PatternError),
    /// A `do` cannot happen to its `when`.
    #[error(transparent)]
    FitFault(#[from] Misfit),
    /// Neither a number nor `always`.
    #[error("'{0}' is no number of times: there are whole numbers from 1 and 'always'")]
    ReadTimes(String),
    /// The first is number 1.
    #[error("there is no number 0 of '{0}': the first is number 1")]
    ReadNumber(Pattern),
}

/// The faults of a file, in order.
///
/// # Errors
/// With the first thing that is wrong.
pub fn parse(yaml: &str) -> Result<Vec<Fault>, FileError> {
    let entries: Vec<Entry> = serde_saphyr::from_str(yaml)?;
    entries.into_iter().map(Entry::fault).collect()
}

/// The files in the crate's folder `faults`, by name: each with what it does to the life of an image.
///
/// # Errors
/// When one cannot be read.
pub fn files() -> io::Result<Vec<(String, Vec<Fault>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults");
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let faults = parse(&fs::read_to_string(&path)?).map_err(io::Error::other)?;
        files.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), faults));
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    when: String,
    #[serde(default = "first")]
    nth: usize,
    #[serde(default = "once")]
    times: String,
    #[serde(default)]
    point: Point,
    #[serde(rename = "do")]
    what: What,
}

fn first() -> usize {
    1
}

fn once() -> String {
    "1".to_owned()
}

impl Entry {
    fn fault(self) -> Result<Fault, FileError> {
        let pattern: Pattern = self.when.parse()?;
        if self.nth == 0 {
            return Err(FileError::ReadNumber(pattern));
        }
        let times = match self.times.as_str() {
            "always" => Times::Always,
            number => match number.parse() {
                Ok(number) if number > 0 => Times::Number(number),
                Ok(_) | Err(_) => return Err(FileError::ReadTimes(self.times)),
            },
        };
        let when = When { pattern, nth: self.nth, times, point: self.point };
        Ok(Fault::new(when, self.what)?)
    }
}
