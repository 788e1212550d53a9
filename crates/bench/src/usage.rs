//! What the kernel counts of a process.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// Ticks a second of `/proc/PID/stat`: 100 on every Linux that programs see.
const TICKS: u64 = 100;

/// CPU and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// In user and kernel mode, of all threads so far, in steps of 10 ms.
    pub(crate) cpu: Duration,
    /// Resident now, in bytes.
    pub(crate) resident: u64,
    /// The most that was ever resident, in bytes.
    pub(crate) peak: u64,
}

impl Usage {
    /// Of this process now.
    pub(crate) fn of(process: i32) -> anyhow::Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        Self::read(&read("stat")?, &read("status")?)
            .with_context(|| format!("process {process} is told of in a way that is not known"))
    }

    fn read(stat: &str, status: &str) -> Option<Self> {
        Some(Self {
            cpu: cpu(stat)?,
            resident: bytes(status, "VmRSS:")?,
            peak: bytes(status, "VmHWM:")?,
        })
    }
}

/// The 14th and 15th field. The second is the name in parentheses, which may hold anything.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut ticks = rest.split(' ').skip(11).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(Duration::from_millis((user + system) * 1000 / TICKS))
}

fn bytes(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\totctl\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194304 10 0 0 0 150 25 0 0 20 0 4 0 99 1 1";
        let usage = Usage::read(stat, STATUS).unwrap();
        assert_eq!(usage.cpu, Duration::from_millis(1750));
        assert_eq!((usage.resident, usage.peak), (1 << 20, 2 << 20));
    }

    #[test]
    fn what_is_missing_is_no_zero() {
        assert_eq!(Usage::read("7 (a) S 1", STATUS), None);
        assert_eq!(bytes("Name:\ta\n", "VmRSS:"), None);
    }

    #[test]
    fn this_process_is_told_of() {
        let usage = Usage::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(usage.resident > 0 && usage.peak >= usage.resident);
    }
}
