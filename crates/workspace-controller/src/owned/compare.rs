//! The walk through what is to be applied, beside what is there.

use serde_json::Value;

use super::{RULES, Rule, amount};

/// A place in an object.
#[derive(Clone)]
struct Place<'a> {
    kind: &'a str,
    /// As rules name it, with `[]` for an item.
    pattern: String,
    /// As people read it, with the key of an item.
    shown: String,
}

/// The first place where `observed` is not as `desired` says.
pub(super) fn difference(kind: &str, desired: &Value, observed: &Value) -> Option<String> {
    let root = Place { kind, pattern: String::new(), shown: String::new() };
    root.difference(desired, observed)
}

impl Place<'_> {
    fn difference(&self, desired: &Value, observed: &Value) -> Option<String> {
        let is_same = match (self.rule(), desired, observed) {
            (Some(Rule::By(keys)), Value::Array(wanted), _) => {
                return self.of_items(keys, wanted, items(observed));
            }
            (Some(Rule::Variables), Value::Array(wanted), _) => {
                return self.of_variables(wanted, items(observed));
            }
            (Some(Rule::Amount), Value::String(one), Value::String(other)) => {
                amount::is_same(one, other)
            }
            (None, Value::Object(fields), Value::Object(_)) => {
                let mut fields = fields.iter();
                return fields.find_map(|(name, value)| {
                    self.field(name).difference(value, observed.get(name).unwrap_or(&Value::Null))
                });
            }
            (None, Value::String(text), Value::Null) => text.is_empty(),
            _ => is_same(desired, observed),
        };
        (!is_same).then(|| self.shown.clone())
    }

    fn rule(&self) -> Option<Rule> {
        let parent = self.pattern.rsplit_once('.').map(|(parent, _)| parent);
        let is_here = |path: &str| match path.strip_suffix(".*") {
            Some(path) => parent == Some(path),
            None => self.pattern == path,
        };
        let mut rules = RULES.iter();
        let rule =
            rules.find(|(kind, path, _)| (kind.is_empty() || *kind == self.kind) && is_here(path));
        rule.map(|(_, _, rule)| *rule)
    }

    /// Items that only `observed` has are others'.
    fn of_items(&self, keys: &[&str], desired: &[Value], observed: &[Value]) -> Option<String> {
        desired.iter().find_map(|item| {
            let place = self.item(keys, item);
            match observed.iter().find(|other| key(keys, other) == key(keys, item)) {
                Some(other) => place.difference(item, other),
                None => Some(place.shown),
            }
        })
    }

    /// A variable may refer to one before it.
    fn of_variables(&self, desired: &[Value], observed: &[Value]) -> Option<String> {
        let difference = self.of_items(&["name"], desired, observed);
        if difference.is_some() || !desired.iter().any(refers_to_another) {
            return difference;
        }
        let place = |item: &Value| observed.iter().position(|other| other["name"] == item["name"]);
        (!desired.iter().map(place).is_sorted()).then(|| self.shown.clone())
    }

    fn field(&self, name: &str) -> Self {
        let join =
            |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let is_plain = !name.contains(['.', '/']);
        let shown = if is_plain { join(&self.shown) } else { format!("{}[{name}]", self.shown) };
        Self { pattern: join(&self.pattern), shown, ..self.clone() }
    }

    fn item(&self, keys: &[&str], item: &Value) -> Self {
        let key: Vec<_> = key(keys, item).iter().map(|value| plain(value)).collect();
        let shown = format!("{}[{}]", self.shown, key.join("/"));
        Self { pattern: format!("{}[]", self.pattern), shown, ..self.clone() }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn key<'a>(keys: &[&str], item: &'a Value) -> Vec<&'a Value> {
    keys.iter().map(|key| &item[*key]).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn refers_to_another(variable: &Value) -> bool {
    variable["value"].as_str().is_some_and(|value| value.contains("$("))
}

/// Whether two values are one. The API server leaves out a list that is empty and what is false. An empty text it leaves
/// out where it is a field, but not where it is the value of a label.
fn is_same(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys());
            let value = |fields: &serde_json::Map<_, Value>, name| {
                fields.get(name).cloned().unwrap_or_default()
            };
            names.into_iter().all(|name| is_same(&value(one, name), &value(other, name)))
        }
        (one, other) => one == other || says_nothing(one) && says_nothing(other),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::String(_) | Value::Number(_) | Value::Bool(true) | Value::Object(_) => false,
    }
}
