//! What the server of a running controller tells: whether it lives, whether it is ready, and its state.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::Context;
use super::assembly::Parts;
use crate::leader::Role;
use crate::server::{Check, Telling};
use crate::telemetry::LogLevel;

/// What the server of this controller tells.
pub(super) fn telling(
    context: &Context,
    parts: &Arc<Parts>,
    role: watch::Receiver<Role>,
    log_level: Option<LogLevel>,
) -> Telling {
    let (health, in_touch) = (context.health.clone(), context.health.clone());
    let (context_of, caches, parts) = (context.clone(), parts.clone(), parts.clone());
    Telling {
        metrics: context.metrics.clone(),
        live: vec![Check::new("loops", move || {
            none_of(health.wedged().iter().map(|silence| &silence.name), "wedged")
        })],
        ready: vec![
            Check::new("caches", move || {
                let absent = caches.caches.iter().filter(|cache| !(cache.is_synced)());
                none_of(absent.map(|cache| &cache.kind), "not synced")
            }),
            Check::new("streams", move || {
                none_of(in_touch.out_of_touch().iter().map(|silence| &silence.name), "not answered")
            }),
        ],
        state: Box::new(move || state(&context_of, &parts, *role.borrow())),
        state_anywhere: context.settings.state_anywhere,
        log_level,
    }
}

fn none_of<'n>(names: impl Iterator<Item = &'n String>, what: &str) -> Result<(), String> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { Ok(()) } else { Err(format!("{what}: {}", names.join(", "))) }
}

/// What `/debug/state` tells.
fn state(context: &Context, parts: &Parts, role: Role) -> Value {
    let contacts = context.health.contacts();
    let streams = contacts.iter().map(|silence| {
        (
            silence.name.clone(),
            json!({"secondsSinceContact": silence.lasted.map(|lasted| lasted.as_secs())}),
        )
    });
    let caches = parts.caches.iter().map(|cache| {
        (cache.kind.clone(), json!({"synced": (cache.is_synced)(), "objects": (cache.count)()}))
    });
    let loops = parts.loops.iter().map(|each| (each.name().to_owned(), json!(each.places())));
    json!({
        "program": context.settings.build.program,
        "version": context.settings.build.version,
        "identity": context.settings.identity,
        "leading": role == Role::Leading,
        "tasks": streams.collect::<Map<_, _>>(),
        "caches": caches.collect::<Map<_, _>>(),
        "loops": loops.collect::<Map<_, _>>(),
    })
}
