//! stub
use std::collections::BTreeMap;
use std::sync::Arc;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use crate::machines::VirtualMachine;
/// stub
pub fn weakened_by(_: &[Arc<NetworkPolicy>], _: &NetworkPolicy, _: &[BTreeMap<String, String>]) -> Vec<String> { Vec::new() }
/// stub
pub fn has_secondary_network(_: &VirtualMachine) -> bool { false }
