//! No function takes a tuple without a name apart in its list of parameters: that packs what clippy's limit on arguments counts.

use syn::{
    FnArg, Pat, Signature, Type,
    visit::{self, Visit},
};

use crate::rules::{assert_none, sources};

/// Functions with such a parameter.
#[derive(Default)]
struct Packed(Vec<String>);

impl Visit<'_> for Packed {
    fn visit_signature(&mut self, signature: &Signature) {
        let is_tuple = |input: &FnArg| match input {
            FnArg::Typed(argument) => {
                matches!(*argument.pat, Pat::Tuple(_)) && is_packed(&argument.ty)
            }
            FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(is_tuple) {
            self.0.push(signature.ident.to_string());
        }
        visit::visit_signature(self, signature);
    }
}

/// Whether a type is a tuple without a name.
fn is_packed(of: &Type) -> bool {
    match of {
        Type::Tuple(parts) => parts.elems.len() > 1,
        Type::Reference(reference) => is_packed(&reference.elem),
        _ => false,
    }
}

fn packed(text: &str) -> Vec<String> {
    let mut found = Packed::default();
    found.visit_file(&syn::parse_file(text).expect("sources are Rust"));
    found.0
}

#[test]
fn parameters_are_no_tuples() {
    let broken: Vec<String> = sources()
        .iter()
        .flat_map(|(path, text)| {
            packed(text).into_iter().map(move |name| format!("{}: {name}", path.display()))
        })
        .collect();
    assert_none(&broken, "take each part as a parameter, or make a struct");
}

#[test]
fn tuples_are_found_where_functions_have_them() {
    let text = "
        fn free((a, b): (u8, u8)) {}
        trait T { fn required(&self, c: (u8, u8)); fn provided(&self, (d, _): (u8, u8)) {} }
        struct S;
        impl S { fn method(&self, x: u8, (e, f): (u8, u8)) { let g = |(h, i): (u8, u8)| h + i; } }
        fn apart(x: u8, Wrapper(y): Wrapper, (v, w): Pair) { fn inner((z, _): &(u8, u8)) {} }";
    assert_eq!(packed(text), ["free", "provided", "method", "inner"]);
}
