//! Where programs come from, with fake ones: shell scripts that say a version.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use local_cluster::programs::{
    Program::{self, Etcd, KubeApiserver, KubeControllerManager, KubeScheduler, Kubectl},
    Sources,
};

const SIBLINGS: [Program; 3] = [KubeApiserver, KubeControllerManager, KubeScheduler];

/// Two directories to look in, and a cache.
struct Places {
    root: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self, place: &str, program: Program) -> PathBuf {
        self.root.path().join(place).join(program.file_name())
    }

    /// Puts a program there that says this version.
    fn put(&self, place: &str, program: Program, version: &str) -> &Self {
        let path = self.path(place, program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, version);
        self
    }

    fn find(&self, wanted: &[Program]) -> Vec<(Program, PathBuf)> {
        let place = |name: &str| self.root.path().join(name);
        let sources =
            Sources { directories: vec![place("assets"), place("path")], cache: place("cache") };
        sources.find(wanted).into_iter().collect()
    }
}

/// Written by another process: a file that is open for writing, if only in a fork of another test, cannot be run.
fn write_program(path: &Path, version: &str) {
    let script = format!("#!/bin/sh\necho 'Program Version: v{version}'\n");
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", r#"printf %s "$1" >"$2" && chmod 755 "$2""#, "sh", &script])
        .arg(path)
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn the_first_place_wins() {
    let places = Places::new();
    places.put("assets", Etcd, "3.6.1").put("path", Etcd, "3.6.2").put("cache", Etcd, "3.6.3");
    assert_eq!(places.find(&[Etcd]), [(Etcd, places.path("assets", Etcd))]);
}

#[test]
fn another_minor_is_passed_over() {
    let places = Places::new();
    places.put("assets", Etcd, "3.5.9").put("path", Etcd, "3.7.0").put("cache", Etcd, "3.6.3");
    assert_eq!(places.find(&[Etcd]), [(Etcd, places.path("cache", Etcd))]);
}

#[test]
fn nothing_is_found_where_all_are_of_another_minor() {
    let places = Places::new();
    places.put("path", Kubectl, "1.33.4").put("cache", Kubectl, "1.35.0");
    assert_eq!(places.find(&[Kubectl]), []);
}

#[test]
fn each_program_is_looked_for_on_its_own() {
    let places = Places::new();
    places.put("path", Kubectl, "1.34.1").put("cache", Etcd, "3.6.3");
    let found = places.find(&[Etcd, Kubectl]);
    assert_eq!(
        found,
        [(Etcd, places.path("cache", Etcd)), (Kubectl, places.path("path", Kubectl))]
    );
}

#[test]
fn siblings_come_from_one_place() {
    let places = Places::new();
    places.put("assets", KubeApiserver, "1.34.0");
    for sibling in SIBLINGS {
        places.put("path", sibling, "1.34.2");
    }
    let from_path = SIBLINGS.map(|sibling| (sibling, places.path("path", sibling)));
    assert_eq!(places.find(&SIBLINGS), from_path);
}

#[test]
fn siblings_that_are_spread_over_places_do_not_count() {
    let places = Places::new();
    places.put("assets", KubeApiserver, "1.34.0").put("path", KubeControllerManager, "1.34.0");
    places.put("cache", KubeScheduler, "1.34.0").put("cache", Etcd, "3.6.0");
    let found = places.find(&Program::CONTROL_PLANE);
    assert_eq!(found, [(Etcd, places.path("cache", Etcd))]);
}

#[test]
fn a_sibling_of_another_minor_spoils_its_place() {
    let places = Places::new();
    places.put("path", KubeApiserver, "1.34.0").put("path", KubeControllerManager, "1.34.0");
    places.put("path", KubeScheduler, "1.33.0");
    assert_eq!(places.find(&SIBLINGS), []);
}

#[test]
fn a_file_that_cannot_be_run_is_passed_over() {
    let places = Places::new();
    places.put("assets", Etcd, "3.6.1").put("path", Etcd, "3.6.2");
    let not_executable = fs::Permissions::from_mode(0o644);
    fs::set_permissions(places.path("assets", Etcd), not_executable).unwrap();
    assert_eq!(places.find(&[Etcd]), [(Etcd, places.path("path", Etcd))]);
}
