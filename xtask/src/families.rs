//! What each controller measures: the reference page and the checks of alerts and dashboards go by it.

use otctl_kit::metrics::{FAMILIES, Family, PROCESS_FAMILIES};

/// The families of one controller.
pub struct Measured {
    /// Its name, as in `otctl_build_info` and of its chart.
    pub program: &'static str,
    /// What it measures beside what all do.
    pub families: &'static [Family],
    /// Its loops: the values of the label `controller`.
    pub loops: &'static [&'static str],
}

/// Every controller.
pub const CONTROLLERS: [Measured; 2] = [
    Measured {
        program: otctl_types::names::DISKIMAGE_CONTROLLER,
        families: &diskimage_controller::metrics::FAMILIES,
        loops: &diskimage_controller::LOOPS,
    },
    Measured {
        program: otctl_types::names::WORKSPACE_CONTROLLER,
        families: &workspace_controller::metrics::FAMILIES,
        loops: &workspace_controller::LOOPS,
    },
];

/// Every family that some controller registers, each once.
pub fn all() -> impl Iterator<Item = &'static Family> {
    let own = CONTROLLERS.iter().flat_map(|controller| controller.families);
    let mut known: Vec<&Family> = Vec::new();
    for family in FAMILIES.iter().chain(&PROCESS_FAMILIES).chain(own) {
        // Two that have only their name in common stay two, which no registry takes.
        if !known.contains(&family) {
            known.push(family);
        }
    }
    known.into_iter()
}
