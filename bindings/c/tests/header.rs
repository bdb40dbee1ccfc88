//! The header is what `abi.rs` and `handed_over.rs` say. `SLUICE_WRITE_HEADER=1 cargo test -p sluice-c`
//! writes it anew.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

use cbindgen::{Builder, DocumentationStyle, Language, Style};

const HEADER: &str = "The SDK of Sluice with a C interface: README.md says how to use it. An operation has a name, and JSON \
for its arguments and its answer.";

#[test]
fn the_header_is_what_the_interface_says() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config { documentation_style: DocumentationStyle::C99, ..Default::default() };
    let made = Builder::new()
        .with_config(config)
        .with_src(crate_folder.join("src/work.rs"))
        .with_src(crate_folder.join("src/abi.rs"))
        .with_src(crate_folder.join("src/handed_over.rs"))
        .with_language(Language::C)
        .with_style(Style::Type)
        .with_cpp_compat(true)
        .with_include_guard("SLUICE_H")
        .with_no_includes()
        .with_sys_include("stddef.h")
        .with_sys_include("stdint.h")
        .with_header(format!("// {HEADER}"))
        .generate()
        .unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    // The Go module has its own: whoever fetches it has no other folder.
    for path in ["include/sluice.h", "../go/include/sluice.h"].map(|path| crate_folder.join(path)) {
        if std::env::var_os("SLUICE_WRITE_HEADER").is_some() {
            std::fs::write(path, &text).unwrap();
            continue;
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            text,
            "write it anew: SLUICE_WRITE_HEADER=1 cargo test -p sluice-c"
        );
    }
}
