//! The machine that figures are of.

use std::fs;
use std::thread::available_parallelism;

/// One line: cores, memory, load.
pub(crate) fn told() -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    line(cores, &memory, &load)
}

fn line(cores: usize, memory: &str, load: &str) -> String {
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let memory = kib.map_or("unknown".to_owned(), |kib| format!("{} GiB", kib.div_ceil(1 << 20)));
    let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown");
    format!("{cores} cores, {memory} of memory, load {load} at the beginning.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line() {
        let told =
            line(2, "MemTotal:       24576000 kB\nMemFree: 1 kB\n", "3.10 2.00 1.00 1/2 3\n");
        assert_eq!(told, "2 cores, 24 GiB of memory, load 3.10 at the beginning.");
        assert_eq!(line(1, "", ""), "1 cores, unknown of memory, load unknown at the beginning.");
    }
}
