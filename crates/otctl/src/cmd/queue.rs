//! `otctl queue`: what runs, what waits, and why.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use otctl_types::workspace::Phase;

use crate::cli::{Format, QueueArgs};
use crate::live::Live;
use crate::queue::{Queues, Row, workspaces};
use crate::view::{self, Picture, View};
use crate::{client, out};

/// Shows the queues: once, or as they change.
pub(crate) async fn run(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.place.cluster).await?;
    let mut live =
        Live::open(&cluster.client, args.queue).await.with_context(|| cluster.address.clone())?;
    match args.output {
        Some(Format::Json) => out::line(&json(&asked_for(live.queues(), args))?),
        None if args.once => {
            out::line(&text(&asked_for(live.queues(), args), args, Timestamp::now()))
        }
        None => follow(&mut live, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Until Ctrl-C, which ends the process: there is nothing to clean up. What ends while it is followed stays in view.
async fn follow(live: &mut Live, args: &QueueArgs) -> anyhow::Result<()> {
    // Lines come with changes only, and there may be none for long.
    if !out::is_terminal() {
        let headlines = headlines(&live.queues(), args).join("; ");
        out::line(&format!("{headlines}; followed until Ctrl-C"));
    }
    let mut view = View::for_output();
    let mut followed = Followed::default();
    loop {
        let queues = live.queues().only(|row| is_here(row, args), |row| is_made_here(row, args));
        followed.extend(&queues);
        view.tell(
            live.broken()
                .map(|why| format!("not up to date, the API server cannot be asked: {why}")),
        );
        let shown = queues.only(
            |row| args.all || followed.images.contains(&place(row)),
            |row| args.all || followed.workspaces.contains(&row.name),
        );
        view.show(&Picture::of_all(&shown));
        live.changed().await?;
    }
}

/// What has been seen on its way.
#[derive(Default)]
struct Followed {
    images: BTreeSet<(String, String)>,
    workspaces: BTreeSet<String>,
}

impl Followed {
    fn extend(&mut self, queues: &Queues) {
        let images = queues.images.iter().flat_map(|table| &table.images);
        self.images.extend(images.filter(|row| !row.has_ended()).map(place));
        let workspaces = queues.workspaces.iter().flat_map(|table| &table.workspaces);
        let queued = workspaces.filter(|row| !row.is_at_rest);
        self.workspaces.extend(queued.map(|row| row.name.clone()));
    }
}

fn place(row: &Row) -> (String, String) {
    (row.namespace.clone(), row.name.clone())
}

fn asked_for(queues: Queues, args: &QueueArgs) -> Queues {
    queues.only(
        |row| is_here(row, args) && (args.all || !row.has_ended()),
        |row| is_made_here(row, args) && (args.all || !row.is_at_rest),
    )
}

fn is_here(row: &Row, args: &QueueArgs) -> bool {
    args.place.namespace.as_ref().is_none_or(|namespace| *namespace == row.namespace)
}

fn is_made_here(row: &workspaces::Row, args: &QueueArgs) -> bool {
    args.place.namespace.is_none() || args.place.namespace == row.namespace
}

fn json(queues: &Queues) -> anyhow::Result<String> {
    serde_json::to_string_pretty(queues).context("the queues cannot be written as JSON")
}

/// What holds for each whole queue, with the way to what is not shown.
fn headlines(queues: &Queues, args: &QueueArgs) -> Vec<String> {
    let failed = [
        queues.images.as_ref().map(|table| table.counts.failed),
        queues.workspaces.as_ref().map(|table| table.counts.failed),
    ];
    let hints = failed
        .into_iter()
        .flatten()
        .map(|failed| if failed > 0 && !args.all { " (-a shows what has ended)" } else { "" });
    view::headlines(queues).into_iter().zip(hints).map(|(line, hint)| line + hint).collect()
}

fn text(queues: &Queues, args: &QueueArgs, now: Timestamp) -> String {
    let images = queues.images.as_ref().map(|table| images(&table.images));
    let workspaces = queues.workspaces.as_ref().map(|table| made(&table.workspaces, now));
    let tables = images.into_iter().chain(workspaces);
    let sections = headlines(queues, args).into_iter().zip(tables);
    let sections = sections.map(|(headline, table)| format!("{headline}\n{table}"));
    sections.collect::<Vec<_>>().join("\n\n")
}

fn images(rows: &[Row]) -> String {
    let header =
        ["POSITION", "NAMESPACE", "NAME", "PHASE", "REASON", "ATTEMPT", "PROGRESS", "MESSAGE"];
    out::table(&header, rows.iter().map(cells))
}

fn cells(row: &Row) -> [String; 8] {
    [
        or_dash(row.position.map(|position| position.to_string())),
        row.namespace.clone(),
        row.name.clone(),
        view::phase(row.phase).to_owned(),
        row.reason.clone(),
        or_dash(row.attempt.map(|attempt| attempt.to_string())),
        or_dash(row.progress().percent().map(|percent| format!("{percent}%"))),
        row.message.clone(),
    ]
}

fn made(rows: &[workspaces::Row], now: Timestamp) -> String {
    let header = [
        "POSITION",
        "NAME",
        "NAMESPACE",
        "PHASE",
        "REASON",
        "ACTIVE",
        "WAITING",
        "READY",
        "MESSAGE",
    ];
    out::table(&header, rows.iter().map(|row| cells_of_workspace(row, now)))
}

fn cells_of_workspace(row: &workspaces::Row, now: Timestamp) -> [String; 9] {
    let age = |at: Option<Timestamp>| or_dash(at.map(|at| out::span(now.duration_since(at))));
    [
        or_dash(row.position.map(|position| position.to_string())),
        row.name.clone(),
        or_dash(row.namespace.clone()),
        or_dash(row.phase.map(|phase| Phase::as_str(phase).to_owned())),
        row.reason.clone(),
        age(row.active_since),
        age(row.queued_at),
        or_dash(row.ready_parts.clone()),
        row.message.clone(),
    ]
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cli::WhereArgs;
    use crate::queue::{Counts, Table};

    fn counts(waiting: usize, failed: usize) -> Counts {
        Counts { limit: Some(4), active: 0, waiting, failed, policy: None }
    }

    fn images() -> Table {
        Table { counts: counts(0, 1), images: Vec::new() }
    }

    fn workspaces() -> workspaces::Table {
        let shop = workspaces::Row {
            name: "shop".to_owned(),
            namespace: Some("labs".to_owned()),
            position: Some(1),
            phase: Some(Phase::Provisioning),
            reason: "SlotsBusy".to_owned(),
            message: "waits for a slot".to_owned(),
            active_since: None,
            queued_at: Some("2026-05-01T11:57:00Z".parse().unwrap()),
            ready_parts: Some("0/2".to_owned()),
            is_at_rest: false,
        };
        let done = workspaces::Row { name: "done".to_owned(), is_at_rest: true, ..shop.clone() };
        workspaces::Table { counts: counts(1, 0), workspaces: vec![shop, done] }
    }

    #[track_caller]
    fn check(queues: Queues, args: &QueueArgs, expected: &[&str]) {
        let now = "2026-05-01T12:00:00Z".parse().unwrap();
        let text = text(&asked_for(queues, args), args, now);
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    const IMAGES: &str = "POSITION NAMESPACE NAME PHASE REASON ATTEMPT PROGRESS MESSAGE";
    const WORKSPACES: &str = "POSITION NAME NAMESPACE PHASE REASON ACTIVE WAITING READY MESSAGE";

    #[test]
    fn each_queue_has_a_section_and_one_alone_has_no_title() {
        let all = QueueArgs::default();
        let failed = "0 of 4 active, 0 waiting, 1 failed (-a shows what has ended)";
        let shop = "1 shop labs Provisioning SlotsBusy - 3m 0/2 waits for a slot";
        let one = Queues { images: Some(images()), workspaces: None };
        check(one, &all, &[failed, IMAGES]);
        let other = Queues { images: None, workspaces: Some(workspaces()) };
        check(other, &all, &["0 of 4 active, 1 waiting", WORKSPACES, shop]);
        let (first, second) =
            (format!("vmdiskimages: {failed}"), "workspaces: 0 of 4 active, 1 waiting");
        let both = Queues { images: Some(images()), workspaces: Some(workspaces()) };
        check(both.clone(), &all, &[&first, IMAGES, "", second, WORKSPACES, shop]);
        let elsewhere = QueueArgs {
            place: WhereArgs { namespace: Some("other".to_owned()), ..WhereArgs::default() },
            ..all
        };
        check(both, &elsewhere, &[&first, IMAGES, "", second, WORKSPACES]);
    }

    #[test]
    fn programs_find_the_queue_of_images_where_it_has_always_been() {
        let told = |images: Option<Table>, workspaces: Option<workspaces::Table>| {
            serde_json::from_str::<Value>(&json(&Queues { images, workspaces }).unwrap()).unwrap()
        };
        let both = told(Some(images()), Some(workspaces()));
        assert_eq!((&both["limit"], &both["images"]), (&Value::from(4), &Value::Array(vec![])));
        let waiting = &both["workspaces"]["workspaces"][0];
        assert_eq!(
            (&waiting["position"], &waiting["queuedAt"]),
            (&1.into(), &"2026-05-01T11:57:00Z".into())
        );
        assert_eq!(both["workspaces"]["waiting"], 1);
        assert!(told(Some(images()), None).get("workspaces").is_none());
        assert!(told(None, Some(workspaces())).get("limit").is_none());
    }
}
