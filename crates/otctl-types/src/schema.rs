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

/// A container has these by a name of Kubernetes, or what a node's owner adds by a name with a domain of theirs.
const IS_A_RESOURCE: &str = "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] \
|| name.matches('^hugepages-[1-9][0-9]{0,5}(Ki|Mi|Gi)$') || (name.matches('^[a-z0-9]+((-+|[.])[a-z0-9]+)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && !name.startsWith('requests.') && name.indexOf('/') <= 244))";

const OTHERS_ARE_COUNTED: &str = "self.all(name, !name.contains('/') || name.contains('kubernetes.io/') \
|| !isQuantity(self[name]) || quantity(self[name]).isInteger())";

const PAGES_ARE_WHOLE: &str = "self.all(name, !name.matches('^hugepages-[1-9][0-9]{0,5}(Ki|Mi|Gi)$') || !isQuantity(self[name]) \
|| (quantity(self[name]).isInteger() && quantity(self[name]).asInteger() % quantity(name.substring(10)).asInteger() == 0))";

/// A bounded map of amounts, as in `resources` of a container.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "x-kubernetes-validations": [
            {
                "rule": IS_A_RESOURCE,
                "message": "a resource is cpu, memory, ephemeral-storage, hugepages-SIZE such as hugepages-2Mi, or one that nodes offer by a name with a domain, such as nvidia.com/gpu"
            },
            {
                "rule": OTHERS_ARE_COUNTED,
                "message": "what nodes offer by a name with a domain is counted: the amount is a whole number, such as 1"
            },
            {
                "rule": PAGES_ARE_WHOLE,
                "message": "an amount of hugepages is of whole pages: a multiple of the size in their name, such as 64Mi of hugepages-2Mi"
            }
        ],
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

const ARE_KEYS_OF_LABELS: &str = "self.all(key, key.indexOf('/') <= 253 && key.matches('^([a-z0-9]+((-+|[.])[a-z0-9]+)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))";

/// A bounded map of labels, as in `matchLabels` of a selector.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "x-kubernetes-validations": [{
            "rule": ARE_KEYS_OF_LABELS,
            "message": "the key of a label is at most 63 letters, digits, '-', '_' and '.', and before a '/' the name of a domain, such as app or example.com/team"
        }],
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
