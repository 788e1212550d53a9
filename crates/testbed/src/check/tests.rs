use jiff::Timestamp;
use kube::core::DynamicObject;
use otctl_kit::cluster::Target;
use otctl_kit::plan::{Action, Next, Notice, Plan, Propagation, Write};
use otctl_kit::reconciler::Subject;
use otctl_types::VMDiskImage;
use otctl_types::names::{ATTEMPT_ANNOTATION, ROLE_LABEL};
use serde_json::{Value, json};

use super::{ledger, lint_plan, owners};
use crate::builders::{ChildBuilder, image, job, key, policy};
use crate::clock::VirtualClock;
use crate::world::World;

fn subject() -> Subject {
    Subject {
        target: Target::new::<VMDiskImage>(Some("lab"), "a"),
        uid: "ours".to_owned(),
        resource_version: "7".to_owned(),
        status: json!({"ticket": "1"}),
    }
}

fn owner(uid: &str) -> Value {
    json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage", "metadata": {"name": "a", "namespace": "lab", "uid": uid},
    })
}

fn dynamic(object: ChildBuilder) -> Box<DynamicObject> {
    Box::new(serde_json::from_value(object.build()).unwrap())
}

fn plan(actions: impl IntoIterator<Item = Action>) -> Plan<Value> {
    let writes =
        actions.into_iter().map(|action| Write { action, because: "of the test" }).collect();
    Plan { writes, ..Plan::rest("tested") }
}

fn delete(uid: &str) -> Action {
    let target = Target::new::<k8s_openapi::api::batch::v1::Job>(Some("lab"), "j");
    Action::Delete {
        target,
        uid: uid.to_owned(),
        resource_version: None,
        propagation: Propagation::Foreground,
    }
}

fn check(plan: &Plan<Value>, wanted: &str) {
    let found = lint_plan(plan, Some(&subject())).join("\n");
    assert!(
        if wanted.is_empty() { found.is_empty() } else { found.contains(wanted) },
        "wanted \"{wanted}\", found: {found}"
    );
}

#[test]
fn a_sound_plan_has_no_problems() {
    let memory = json!({"ticket": "1", "lastAttempt": 2});
    let create = Action::Create(dynamic(job("lab/n").owned_by(&owner("ours"))));
    let apply =
        Action::Apply(dynamic(job("lab/m").with(|job| job["metadata"]["uid"] = json!("u"))));
    let mut sound = plan([Action::Remember(memory.clone()), delete("u"), create, apply]);
    sound.status = Some(json!({"ticket": "1", "lastAttempt": 2, "phase": "Queued"}));
    check(&sound, "");
    check(&plan([Action::Swap(memory)]), "");
}

#[test]
fn writes_name_the_object_they_were_decided_on() {
    check(&plan([Action::Apply(dynamic(job("lab/j")))]), "applies without a UID");
    check(&plan([delete("")]), "deletes without a UID");
    check(&plan([Action::Create(dynamic(job("lab/j")))]), "without a controller owner");
    check(
        &plan([Action::Create(dynamic(job("lab/j").owned_by(&owner("theirs"))))]),
        "for owner UID theirs",
    );
    check(
        &plan([Action::Create(dynamic(job("other/j").owned_by(&owner("ours"))))]),
        "in another namespace",
    );
    let nameless =
        job("lab/j").owned_by(&owner("ours")).with(|job| job["metadata"]["name"] = Value::Null);
    check(&plan([Action::Create(dynamic(nameless))]), "without a name");
    check(&plan([Action::Ensure(dynamic(job("lab/j")))]), "more than metadata");
}

#[test]
fn marks_are_guarded_and_of_others() {
    let mark = |name: &str, version: &str, fields: Value| Action::Mark {
        target: Target::new::<VMDiskImage>(Some("lab"), name),
        resource_version: version.to_owned(),
        fields,
    };
    check(&plan([mark("b", "7", json!({"ticket": "1"}))]), "");
    check(&plan([mark("b", "", json!({"ticket": "1"}))]), "without a resourceVersion");
    check(&plan([mark("a", "7", json!({"ticket": "1"}))]), "marks its own object");
    check(&plan([mark("b", "7", json!({}))]), "marks nothing");
}

#[test]
fn what_is_stripped_was_read() {
    let strip = |uid: &str, version: &str, places: &[&str]| Action::Strip {
        target: Target::new::<VMDiskImage>(Some("lab"), "b"),
        uid: uid.to_owned(),
        resource_version: version.to_owned(),
        places: places.iter().map(|&place| place.to_owned()).collect(),
    };
    check(&plan([strip("u", "7", &["/a"])]), "");
    check(&plan([strip("", "7", &["/a"])]), "without a UID");
    check(&plan([strip("u", "", &["/a"])]), "without a UID");
    check(&plan([strip("u", "7", &[])]), "without a UID");
    check(&plan([strip("u", "7", &["/a"]), strip("u", "7", &["/a"])]), "twice");
}

#[test]
fn the_order_of_writes_is_sound() {
    let memory = json!({"lastAttempt": 1});
    check(&plan([delete("u"), Action::Swap(memory.clone())]), "swaps after another write");
    check(&plan([delete("u"), Action::Remember(memory.clone())]), "remembers after it deleted");
    check(&plan([delete("u"), delete("u")]), "twice");
    let mut forgetful = plan([Action::Remember(memory)]);
    forgetful.status = Some(json!({"phase": "Queued"}));
    check(&forgetful, "forgets \"lastAttempt\"");
    // A write that is about something else leaves it as it was.
    let untouched = subject().status.clone();
    let mut apart = plan([Action::Remember(untouched)]);
    apart.status = Some(json!({"ticket": "9", "lastAttempt": 9, "phase": "Queued"}));
    check(&apart, "");
    check(&plan([Action::Remember(json!({}))]), "carries no status");
}

#[test]
fn a_plan_about_nothing_writes_no_status_and_every_plan_has_its_words() {
    let mut about_nothing = plan([Action::Remember(json!({"ticket": "1"}))]);
    about_nothing.status = Some(json!({}));
    assert_eq!(lint_plan(&about_nothing, None).len(), 3, "{:?}", lint_plan(&about_nothing, None));
    let mut silent = plan([delete("u")]);
    silent.writes[0].because = "";
    check(&silent, "without a reason");
    let notice = Notice {
        warning: true,
        reason: "not a word".to_owned(),
        action: "Sync",
        message: String::new(),
        regarding: None,
    };
    check(&Plan { notices: vec![notice], ..Plan::rest("tested") }, "is no word");
    check(&Plan { next: Next::At(Timestamp::UNIX_EPOCH), ..Plan::rest("") }, "has no verdict");
}

// Histories, written by hand: the ledger, two images, their Jobs and pods.

struct Book {
    world: World,
}

impl Book {
    fn new(concurrency: u32) -> Self {
        let world = World::new(&VirtualClock::default());
        policy().concurrency(concurrency).apply(&world);
        world.create_value(json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": "vmdiskimages"},
        }));
        image("lab/a").create(&world);
        image("lab/b").create(&world);
        Self { world }
    }

    fn uid(&self, name: &str) -> String {
        self.world.get("VMDiskImage", &key(name)).unwrap()["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn ticket(self, name: &str, ticket: &str) -> Self {
        self.status(name, &json!({"ticket": ticket, "phase": "Queued"}))
    }

    fn status(self, name: &str, fields: &Value) -> Self {
        let target = Target::new::<VMDiskImage>(Some("lab"), &key(name).name);
        let patch = json!({"status": fields});
        self.world
            .request("toy", otctl_kit::cluster::Request::PatchStatus { target, patch })
            .unwrap();
        self
    }

    /// The ledger holds attempt 1 of these, in this order, with tickets 1, 2, … in the order of names.
    fn active(self, limit: u64, names: &[&str]) -> Self {
        let entries: Vec<Value> = names
            .iter()
            .map(|name| {
                let ticket = if *name == "lab/a" { "1" } else { "2" };
                json!({"namespace": "lab", "name": key(name).name, "uid": self.uid(name), "attempt": 1, "ticket": ticket})
            })
            .collect();
        self.world.edit("AdmissionQueue", &key("vmdiskimages"), |queue| {
            queue["status"] = json!({"limit": limit, "active": entries});
        });
        self
    }

    fn job(self, name: &str, job_name: &str, suspended: bool) -> Self {
        let owner = self.world.get("VMDiskImage", &key(name)).unwrap();
        job(job_name)
            .owned_by(&owner)
            .with(|job| {
                job["metadata"]["labels"] = json!({ROLE_LABEL: "import"});
                job["metadata"]["annotations"] = json!({ATTEMPT_ANNOTATION: "1"});
                job["spec"]["suspend"] = json!(suspended);
            })
            .create(&self.world);
        self
    }

    /// Records the Job as the open attempt.
    fn open(self, name: &str, job_name: &str) -> Self {
        let job = self.world.get("Job", &key(job_name)).unwrap()["metadata"]["uid"].clone();
        self.status(name, &json!({"phase": "Syncing", "lastAttempt": 1, "openAttempt": {"number": 1, "jobUID": job}}))
    }

    /// Starts the Job, and its pod is made.
    fn start(self, job_name: &str) -> Self {
        self.world.edit("Job", &key(job_name), |job| job["spec"]["suspend"] = json!(false));
        let act = self.world.acts().into_iter().find(|act| act.id.key == key(job_name)).unwrap();
        self.world.perform(&act);
        self
    }

    fn found(&self, find: fn(&[crate::world::Version]) -> Vec<String>, wanted: &str) {
        let found = self.world.history(find).join("\n");
        assert!(
            if wanted.is_empty() { found.is_empty() } else { found.contains(wanted) },
            "\"{wanted}\" in: {found}"
        );
    }
}

#[test]
fn a_history_by_the_book_has_no_violations() {
    let book = Book::new(1).ticket("lab/a", "1").ticket("lab/b", "2").active(1, &["lab/a"]);
    let book = book.job("lab/a", "lab/ja", true).open("lab/a", "lab/ja").start("lab/ja");
    book.found(ledger::intact, "");
    let act = |kind: &str| {
        let act = book.world.acts().into_iter().find(|act| act.id.kind == kind).unwrap();
        book.world.perform(&act);
    };
    ["Pod", "Pod", "Job"].into_iter().for_each(act);
    let book = Book { world: book.world.clone() }
        .status("lab/a", &json!({"openAttempt": null, "phase": "Succeeded"}));
    book.active(1, &["lab/b"]).found(ledger::intact, "");
}

#[test]
fn an_admission_above_the_limit_is_found() {
    Book::new(1)
        .active(1, &["lab/a", "lab/b"])
        .found(ledger::admissions_within_limit, "2 of Some(1) active");
    let restored = Book::new(1).active(1, &["lab/a"]).job("lab/b", "lab/jb", true).start("lab/jb");
    restored.active(1, &["lab/a", "lab/b"]).found(ledger::admissions_within_limit, "");
}

#[test]
fn a_limit_that_the_policy_does_not_say_is_found() {
    Book::new(1).active(3, &["lab/a"]).found(ledger::limit_is_current, "the policy said [Some(1)]");
    let book = Book::new(3).active(3, &["lab/a"]);
    policy().concurrency(1).apply(&book.world);
    let book = book.active(3, &["lab/a", "lab/b"]);
    book.found(ledger::limit_is_current, "");
    let book = Book::new(3);
    policy().concurrency(1).apply(&book.world);
    book.active(1, &[])
        .active(3, &["lab/a"])
        .found(ledger::limit_is_current, "the policy said [Some(1)]");
    let garbage = Book::new(3);
    policy().set("concurrency", "abc").apply(&garbage.world);
    garbage.active(3, &["lab/a"]).found(ledger::limit_is_current, "");
}

#[test]
fn pods_above_the_limit_or_without_entry_or_twice_are_found() {
    let two = Book::new(1).active(1, &["lab/a"]).job("lab/a", "lab/ja", true).start("lab/ja");
    let two = two.job("lab/b", "lab/jb", true).start("lab/jb");
    two.found(ledger::pods_within_limit, "2 import pods alive, the limit is 1");
    two.found(ledger::pods_have_entries, "runs without entry");
    two.found(ledger::one_pod_per_attempt, "");
    let twice = Book::new(1).active(1, &["lab/a"]).job("lab/a", "lab/j1", true).start("lab/j1");
    twice
        .job("lab/a", "lab/j2", true)
        .start("lab/j2")
        .found(ledger::one_pod_per_attempt, "a second import pod");
    let dropped = Book::new(1)
        .active(1, &["lab/a"])
        .job("lab/a", "lab/ja", true)
        .start("lab/ja")
        .active(1, &[]);
    dropped.found(ledger::pods_have_entries, "runs without entry");
    dropped.found(ledger::always, "without being on record");
}

#[test]
fn a_lowered_limit_does_not_count_against_what_runs() {
    let book = Book::new(2).active(2, &["lab/a", "lab/b"]);
    let book = book.job("lab/a", "lab/ja", true).job("lab/b", "lab/jb", true).start("lab/ja");
    let book = book.active(1, &["lab/a", "lab/b"]).start("lab/jb");
    book.found(ledger::pods_within_limit, "");
}

#[test]
fn attempts_that_are_not_on_record_or_fall_are_found() {
    Book::new(1)
        .job("lab/a", "lab/ja", false)
        .found(ledger::started_jobs_are_recorded, "was created started");
    let unrecorded = Book::new(1).job("lab/a", "lab/ja", true).start("lab/ja");
    unrecorded.found(ledger::started_jobs_are_recorded, "without being on record");
    let book = Book::new(1)
        .status("lab/a", &json!({"lastAttempt": 2}))
        .status("lab/a", &json!({"lastAttempt": 1}));
    book.found(ledger::attempts_only_grow, "fell from 2 to 1");
}

#[test]
fn overtaking_and_inverted_tickets_are_found() {
    let overtaken = Book::new(1).ticket("lab/a", "1").active(1, &[]).active(1, &["lab/b"]);
    overtaken.found(ledger::fair_admission, "b (2) was admitted before a (1)");
    let turns_out = Book::new(1).ticket("lab/a", "1").active(1, &["lab/b"]);
    let condition =
        json!({"type": "Admitted", "status": "False", "reason": "StorageClassNotFound"});
    let turns_out = turns_out.status("lab/a", &json!({"conditions": [condition]}));
    turns_out.found(ledger::fair_admission, "");
    let in_backoff = Book::new(1)
        .ticket("lab/a", "1")
        .status("lab/a", &json!({"nextRetryAt": "2026-01-01T12:30:00Z"}));
    in_backoff.active(1, &[]).active(1, &["lab/b"]).found(ledger::fair_admission, "");
    Book::new(1)
        .ticket("lab/a", "2")
        .ticket("lab/b", "1")
        .found(ledger::first_tickets_in_order, "lab/a has first ticket 2");
    Book::new(1)
        .ticket("lab/a", "1")
        .ticket("lab/b", "2")
        .found(ledger::first_tickets_in_order, "");
    let suspended = Book::new(1);
    suspended
        .world
        .edit("VMDiskImage", &key("lab/a"), |image| image["spec"]["suspend"] = json!(true));
    suspended.ticket("lab/a", "2").ticket("lab/b", "1").found(ledger::first_tickets_in_order, "");
}

#[test]
fn creates_that_cross_may_have_their_tickets_in_either_order() {
    let crossing = |a: &str, b: &str| {
        let book = Book::new(1).ticket("lab/a", a).ticket("lab/b", b);
        let mut history = book.world.history(<[_]>::to_vec);
        for version in &mut history {
            let second = if version.id.key.name == "a" { "00:00:02Z" } else { "00:00:01Z" };
            version.object["metadata"]["creationTimestamp"] = json!(second);
        }
        ledger::first_tickets_in_order(&history)
    };
    assert_eq!(crossing("1", "2"), [""; 0]);
    assert_eq!(crossing("2", "1"), [""; 0]);
    assert_eq!(crossing("1", "1"), ["lab/a has first ticket 1, lab/b, created later, has 1"]);
}

#[test]
fn orphans_and_what_is_not_ours_are_found() {
    let book = Book::new(1).job("lab/a", "lab/ja", true);
    book.found(owners::orphans, "");
    book.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    book.found(owners::orphans, "Job lab/ja is an orphan");
    let book = Book::new(1);
    let create = |object: ChildBuilder| {
        book.world.request("toy", otctl_kit::cluster::Request::Create(dynamic(object))).unwrap();
    };
    create(job("lab/j1").owned_by(&book.world.get("VMDiskImage", &key("lab/a")).unwrap()));
    book.found(owners::adopted, "");
    create(job("lab/j2"));
    book.found(owners::adopted, "toy made Job lab/j2 without a controller owner");
    let theirs = job("lab/theirs").create(&book.world);
    let metadata = json!({"name": "theirs", "namespace": "lab", "uid": theirs["metadata"]["uid"], "labels": {"x": "y"}});
    let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata});
    let apply =
        otctl_kit::cluster::Request::Apply(Box::new(serde_json::from_value(object).unwrap()));
    book.world.request("toy", apply).unwrap();
    book.found(owners::adopted, "wrote to Job lab/theirs, which a user made");
}
