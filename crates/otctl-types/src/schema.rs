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

/// A bounded map of amounts, as in `resources` of a container.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string", "minLength": 1, "maxLength": 32,
            "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
            "description": "An amount, such as 500m or 256Mi.",
            "x-kubernetes-validations": [{
                "rule": "isQuantity(self)",
                "message": "an amount is a number and at most one unit, such as 500m, 2, 256Mi or 4Gi"
            }]
        }
    })
}

/// A bounded map of labels, as in `matchLabels` of a selector.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string", "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
            "description": "The value of the label.",
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",
                "message": "the value of a label is of letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
            }]
        }
    })
}

/// A port by its number or by its name. No rule could say more of the name: its length is unbounded to a rule.
pub(crate) fn port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "minimum": 1, "maximum": 65535,
        "minLength": 1, "maxLength": 15, "pattern": "^([a-z0-9]-?)*[a-z](-?[a-z0-9])*$"
    })
}
