//! Long files and functions, as warnings: the place to look for a seam.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::repository::Source;

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;

pub(super) fn warnings(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(warnings_of).collect()
}

fn warnings_of(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let mut warnings = Vec::new();
    if lines > FILE_LINES {
        warnings.push(format!("{} has {lines} lines", source.path));
    }
    // A file that does not parse is the compiler's business.
    if let Ok(file) = syn::parse_file(&source.text) {
        let mut functions = Functions { path: &source.path, warnings };
        functions.visit_file(&file);
        warnings = functions.warnings;
    }
    warnings
}

struct Functions<'a> {
    path: &'a str,
    warnings: Vec<String>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, block: &syn::Block) {
        let span = block.span();
        let lines = span.end().line - name.span().start().line + 1;
        if lines > FUNCTION_LINES {
            self.warnings.push(format!("{}: fn {name} has {lines} lines", self.path));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings_for(text: String) -> Vec<String> {
        warnings(&[Source { path: "a.rs".to_owned(), text }])
    }

    #[test]
    fn a_long_function_is_named_with_its_length() {
        let body = "    work();\n".repeat(69);
        assert_eq!(
            warnings_for(format!("fn long() {{\n{body}}}\n")),
            ["a.rs: fn long has 71 lines"]
        );
        let body = "    work();\n".repeat(68);
        assert_eq!(warnings_for(format!("fn fits() {{\n{body}}}\n")), Vec::<String>::new());
    }

    #[test]
    fn a_long_file_is_named() {
        assert_eq!(warnings_for("// Line.\n".repeat(401)), ["a.rs has 401 lines"]);
    }
}
