//! stub
use std::sync::Arc;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use otctl_types::condition::Reason;
use otctl_types::workspace::{Container, ContainerState, Instance};
use crate::machines::VirtualMachine;
/// stub
pub struct Part { pub state: ContainerState, pub reason: Reason, pub message: String }
/// stub
pub fn container(e: &Container, d: Option<&Deployment>, _: &[Arc<Pod>]) -> Part {
    let ok = d.is_some_and(|d| { let s = d.status.clone().unwrap_or_default(); s.observed_generation == d.metadata.generation && s.available_replicas.unwrap_or(0) == e.replicas });
    let state = if ok { ContainerState::Running } else if d.is_some() { ContainerState::Progressing } else { ContainerState::Pending };
    Part { state, reason: Reason::Progressing, message: "starts".to_owned() } }
/// stub
pub fn machine(_: &Instance, m: Option<&VirtualMachine>, _: &[Arc<Pod>]) -> Part {
    let ok = m.and_then(|m| Some(m.status.as_ref()?.ready)).unwrap_or(false);
    Part { state: if ok { ContainerState::Running } else { ContainerState::Progressing }, reason: Reason::Progressing, message: "starts".to_owned() } }
