//! Documentation as it stands in the source: the one place where the meaning of a key or a reason is written.

use anyhow::Context as _;
use syn::{Attribute, Expr, ExprLit, File, Item, Lit, Meta};

use crate::repository;

/// A source file.
pub(super) struct Source(File);

/// A name with its documentation, on one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Documented {
    pub(super) name: String,
    pub(super) text: String,
}

impl Source {
    pub(super) fn read(path: &str) -> anyhow::Result<Self> {
        Self::parse(&repository::read(path)?).with_context(|| format!("cannot read {path} as Rust"))
    }

    fn parse(text: &str) -> syn::Result<Self> {
        syn::parse_file(text).map(Self)
    }

    /// The variants of an enum.
    pub(super) fn variants(&self, name: &str) -> anyhow::Result<Vec<Documented>> {
        let found = self.0.items.iter().find_map(|item| match item {
            Item::Enum(item) if item.ident == name => Some(item),
            _ => None,
        });
        let variants = &found.with_context(|| format!("there is no enum {name}"))?.variants;
        Ok(variants
            .iter()
            .map(|it| Documented { name: it.ident.to_string(), text: text(&it.attrs) })
            .collect())
    }

    /// The fields of a struct.
    pub(super) fn fields(&self, name: &str) -> anyhow::Result<Vec<Documented>> {
        let found = self.0.items.iter().find_map(|item| match item {
            Item::Struct(item) if item.ident == name => Some(item),
            _ => None,
        });
        let fields = &found.with_context(|| format!("there is no struct {name}"))?.fields;
        let named =
            fields.iter().filter_map(|it| Some((it.ident.as_ref()?.to_string(), text(&it.attrs))));
        Ok(named.map(|(name, text)| Documented { name, text }).collect())
    }

    /// The constants that are texts, by their value.
    pub(super) fn texts(&self) -> Vec<Documented> {
        let constants = self.0.items.iter().filter_map(|item| match item {
            Item::Const(item) => {
                Some(Documented { name: literal(&item.expr)?, text: text(&item.attrs) })
            }
            _ => None,
        });
        constants.collect()
    }
}

fn text(attributes: &[Attribute]) -> String {
    let lines =
        attributes.iter().filter(|it| it.path().is_ident("doc")).filter_map(|it| match &it.meta {
            Meta::NameValue(pair) => literal(&pair.value),
            _ => None,
        });
    lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(" ")
}

fn literal(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documented(name: &str, text: &str) -> Documented {
        Documented { name: name.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn documentation_is_read_on_one_line() {
        let source = Source::parse(
            "/// The first\n/// one.\npub const FIRST: &str = \"First\";\npub const SIZE: usize = 1;\n\
             enum Word { /// One.\n One, /** Two. */ Two(u8) }\nstruct Pair { /// Left.\n left: u8 }",
        );
        let source = source.unwrap();
        assert_eq!(source.texts(), [documented("First", "The first one.")]);
        assert_eq!(
            source.variants("Word").unwrap(),
            [documented("One", "One."), documented("Two", "Two.")]
        );
        assert_eq!(source.fields("Pair").unwrap(), [documented("left", "Left.")]);
        assert!(source.variants("Nothing").is_err());
    }
}
