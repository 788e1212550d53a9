use super::*;

fn call(line: &str) -> Call {
    let pattern: Vec<&str> = line.split(' ').collect();
    let verb = Verb::ALL.into_iter().find(|verb| verb.to_string() == pattern[0]).unwrap();
    let rest = &pattern[1..];
    let has_part = rest.first().is_some_and(|word| word.starts_with(char::is_lowercase));
    let word = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    let after = usize::from(has_part);
    let part = if has_part { word(0) } else { String::new() };
    Call { verb, part, kind: word(after), name: word(after + 1) }
}

fn is_meant(pattern: &str, line: &str) -> bool {
    let call = call(line);
    assert_eq!(call.to_string(), line);
    pattern.parse::<Pattern>().unwrap().matches(&call)
}

#[test]
fn what_is_left_out_is_open() {
    for line in ["create Job labs/a", "patch status VMDiskImage labs/a", "delete Job labs/a"] {
        assert!(is_meant("write", line) && is_meant("any", line) && !is_meant("read", line));
    }
    assert!(is_meant("create Job", "create Job labs/a"));
    assert!(is_meant("watch", "watch Pod") && is_meant("read", "continue Pod"));
    assert!(!is_meant("any", "event added Pod labs/a"), "an event is no request");
}

#[test]
fn a_kind_is_the_object_itself_and_a_subresource_is_named() {
    assert!(!is_meant("patch VMDiskImage", "patch status VMDiskImage labs/a"));
    assert!(is_meant("patch status VMDiskImage", "patch status VMDiskImage labs/a"));
    assert!(is_meant("write any VMDiskImage", "patch status VMDiskImage labs/a"));
    assert!(is_meant("write any VMDiskImage", "delete VMDiskImage labs/a"));
    assert!(is_meant("write any * labs/a", "delete VMDiskImage labs/a"));
    assert!(is_meant("event Pod", "event deleted Pod labs/a"));
    assert!(!is_meant("event added Pod", "event deleted Pod labs/a"));
    assert!(is_meant("event bookmark", "event bookmark Pod"));
}

#[test]
fn a_star_stands_for_anything() {
    let is_named =
        |pattern: &str| is_meant(&format!("create Job {pattern}"), "create Job labs/import-a1");
    for pattern in ["*", "labs/*", "*/import-a1", "labs/import-*", "l*/*a1", "labs/import-a1", "*1"]
    {
        assert!(is_named(pattern), "{pattern}");
    }
    for pattern in ["labs", "lab/*", "import-a1", "labs/import-", "*2"] {
        assert!(!is_named(pattern), "{pattern}");
    }
}

#[test]
fn what_is_no_pattern_is_told() {
    for (text, why) in [
        ("", "empty"),
        ("make Job", "no verb"),
        ("create job", "capital"),
        ("create Job labs/a b", "after the name"),
    ] {
        let error = text.parse::<Pattern>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_nth_and_those_that_follow_are_struck_and_the_first_fault_wins() {
    let faults = Faults::default();
    faults.add(at("create Job").nth(2).times(2).then(What::Lose));
    faults.add(at("write").always().then(What::Duplicate));
    faults.add(at("delete").then(What::Kill));
    let strikes: Vec<_> = (0..5)
        .map(|_| faults.strike(&call("create Job labs/a")).unwrap().what().to_string())
        .collect();
    assert_eq!(strikes, ["duplicate", "lose", "lose", "duplicate", "duplicate"]);
    assert_eq!(faults.strike(&call("get Job labs/a")), None);
    assert_eq!(faults.writes(), 5);
    assert_eq!(faults.unmet(), ["kill at 'delete' number 1 (Before) (seen 0, struck 0)"]);
}

#[test]
fn a_fault_before_which_another_strikes_is_not_met() {
    let faults = Faults::default();
    faults.add(at("create Job").then(What::Lose));
    faults.add(at("create Job").then(What::Kill));
    faults.add(at("create Job").nth(2).times(2).then(What::Duplicate));
    (0..2).for_each(|_| drop(faults.strike(&call("create Job labs/a"))));
    let unmet = faults.unmet();
    assert!(
        matches!(&unmet[..], [kill, twice] if kill.ends_with("(seen 2, struck 0)")
        && twice.ends_with("(seen 2, struck 1)")),
        "{unmet:?}"
    );
}

const FILE: &str = r"
- when: create Job labs/*
  nth: 2
  times: 3
  point: commit
  do: kill
- when: patch status VMDiskImage labs/a
  do: {answer: {status: 429, retryAfter: 1000000000}}
- when: event modified Pod
  times: always
  do: {delay: 5s}
- when: event VMDiskImage labs/a
  do: {replay: 3}
- when: any
  point: reply
  do: {stop: 250ms}
";

#[test]
fn a_file_says_the_same_as_code() {
    let answer = Answer { retry_after: Some(1_000_000_000), ..Answer::refusal(429, "") };
    let wanted = [
        at("create Job labs/*").nth(2).times(3).point(Point::Commit).then(What::Kill),
        at("patch status VMDiskImage labs/a").then(What::Answer(answer)),
        at("event modified Pod").always().then(What::Delay(std::time::Duration::from_secs(5))),
        at("event VMDiskImage labs/a").then(What::Replay(3)),
        at("any").point(Point::Reply).then(What::Stop(std::time::Duration::from_millis(250))),
    ];
    assert_eq!(parse(FILE).unwrap(), wanted);
}

#[test]
fn a_file_that_is_wrong_says_where() {
    for (yaml, why) in [
        ("[{when: create job, do: kill}]", "capital"),
        ("[{when: create Job, do: explode}]", "explode"),
        ("[{when: create Job, do: kill, often: 2}]", "often"),
        ("[{when: create Job, do: kill, times: never}]", "'never' is no number of times"),
        ("[{when: create Job, do: kill, times: 0}]", "'0' is no number of times"),
        ("[{when: create Job, do: {delay: 5}}]", "time"),
        ("[{when: create Job, do: drop}]", "'drop (Before)' does not happen to 'create Job'"),
        ("[{when: event Pod, do: lose}]", "'lose (Before)' does not happen to 'event Pod'"),
        ("[{when: event Pod, do: kill, point: commit}]", "does not happen to 'event Pod'"),
        ("[{when: create Job, do: hold, point: under-way}]", "does not happen to 'create Job'"),
    ] {
        let error = parse(yaml).unwrap_err();
        let told = format!("{error} {:?}", std::error::Error::source(&error));
        assert!(told.contains(why), "{yaml}: {told}");
    }
}

#[test]
fn the_world_in_memory_says_what_it_cannot_express() {
    let minute = std::time::Duration::from_secs(60);
    let gone = || What::Answer(Answer::refusal(410, "Expired"));
    for (fault, why) in [
        (at("event Pod").then(What::Drop), "simulation"),
        (at("watch Pod").then(gone()), "simulation"),
        (at("continue Pod").then(gone()), "one request"),
        (at("create Job").then(What::Delay(minute)), "no time"),
        (at("create Job").then(What::Stop(minute)), "turn"),
        (at("create Job").then(What::Answer(Answer::refusal(200, ""))), "refuses only"),
    ] {
        let error = Effect::of(&fault).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(&fault.to_string()), "{error}");
    }
}

#[test]
fn the_world_in_memory_knows_the_rest() {
    let told = |fault: &Fault| format!("{:?}", Effect::of(fault).unwrap());
    let kill = |point| told(&at("create Job").point(point).then(What::Kill));
    let kills = [Point::Before, Point::UnderWay, Point::Commit, Point::Reply].map(kill);
    assert_eq!(kills, ["DieBefore", "DieInFlight", "DieAfter", "DieAfter"]);
    let full = || What::Answer(Answer { retry_after: Some(7), ..Answer::refusal(429, "") });
    assert_eq!(
        told(&at("create Job").then(full())),
        "Answer(Throttled { retry_after_seconds: Some(7) })"
    );
    let after = told(&at("create Job").point(Point::Commit).then(full()));
    assert!(after.starts_with("AnswerAfter(Throttled"), "{after}");
    let taken = What::Answer(Answer::refusal(409, "AlreadyExists"));
    assert_eq!(told(&at("create Job").then(taken)), "Answer(AlreadyExists)");
    assert!(told(&at("create Job").then(What::Cut(3))).starts_with("AnswerAfter(Unknown"));
    assert!(told(&at("create Job").then(What::Blackhole)).starts_with("Answer(Unknown"));
    assert_eq!(told(&at("create Job").then(What::Duplicate)), "Twice");
}
