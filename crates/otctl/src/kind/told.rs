//! What is told of objects of every kind: conditions and Events, as branches of a tree. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::out;
use crate::tree::Node;

/// More Events than that are of another day.
const MOST_EVENTS: usize = 8;

/// Those of `conditions` that are not as they should be; several that say the same stand together. What stands on `top` of
/// the tree is not told again.
pub(super) fn conditions(
    conditions: &[Condition],
    top: &str,
    is_remarkable: impl Fn(&Condition) -> bool,
) -> Node {
    let mut groups: Vec<(Vec<&str>, &Condition)> = Vec::new();
    for condition in conditions.iter().filter(|it| is_remarkable(it)) {
        let says = |it: &Condition| (it.status.clone(), it.reason.clone(), it.message.clone());
        match groups.iter_mut().find(|(_, first)| says(first) == says(condition)) {
            Some((names, _)) => names.push(&condition.type_),
            None => groups.push((vec![&condition.type_], condition)),
        }
    }
    if groups.is_empty() {
        let word = if conditions.is_empty() { "none yet" } else { "all as they should be" };
        return Node::new(format!("Conditions: {word}"));
    }
    let nodes = groups.into_iter().map(|(names, condition)| {
        let Condition { status, reason, message, .. } = condition;
        let message = Some(message).filter(|message| *message != top);
        Node::new(format!("{}: {status} ({reason})", names.join(", "))).notes(message.cloned())
    });
    Node::new("Conditions").parts(nodes)
}

/// The last of `events`; none where there are none.
pub(super) fn events(events: &[Event], now: Timestamp) -> Option<Node> {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| seen_at(event));
    let last = events.iter().skip(events.len().saturating_sub(MOST_EVENTS));
    let nodes: Vec<Node> = last.map(|told| event(told, now)).collect();
    (!nodes.is_empty()).then(|| Node::new("Events").parts(nodes))
}

fn event(event: &Event, now: Timestamp) -> Node {
    let [kind, reason] =
        [&event.type_, &event.reason].map(|text| text.as_deref().unwrap_or_default());
    let age = seen_at(event).map(|at| format!("{} ago, ", out::span(now.duration_since(at))));
    let times = event.series.as_ref().and_then(|series| series.count).or(event.count);
    let times = times.filter(|times| *times > 1).map(|times| format!(", {times} times"));
    let title = format!("{}{kind} {reason}{}", age.unwrap_or_default(), times.unwrap_or_default());
    Node::new(title).notes(event.message.clone())
}

/// When it was told last. Which field says so depends on who told it.
pub(super) fn seen_at(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|at| at.0);
    let plain = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|at| at.0);
    plain.or(micro).or(event.metadata.creation_timestamp.as_ref().map(|at| at.0))
}
