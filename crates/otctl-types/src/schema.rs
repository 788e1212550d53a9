//! Schemas of fields whose Rust type comes from elsewhere and says too little: bounds, patterns, list keys.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A list of `metav1.Condition`, keyed by `type`, so that server-side apply and `kubectl wait` see single conditions.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One finding about the object.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316, "description": "Name of the condition."},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds."},
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "metadata.generation that the condition was judged on."
                },
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "When status last changed."
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "One CamelCase word for programs; docs/runbook.md explains each."
                },
                "message": {"type": "string", "maxLength": 32768, "description": "A sentence for people."}
            }
        }
    })
}

/// A bounded map of short texts; `length` of a derive speaks of lists only.
pub(crate) fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 4096, "description": "The value in effect."}
    })
}
