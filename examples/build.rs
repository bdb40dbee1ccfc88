//! Takes the quick starts out of the documents, so that the programs that readers copy are compiled and run
//! as they stand there: `.ci/guides shell` runs them.

use std::error::Error;
use std::path::Path;

/// The page, and the example that is its first whole program.
const PAGES: [(&str, &str); 2] = [("../README.md", "first_program"), ("../docs/rust.md", "quick_start")];

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::var("OUT_DIR")?;
    for (page, name) in PAGES {
        println!("cargo::rerun-if-changed={page}");
        let text = std::fs::read_to_string(page)?;
        let blocks = text.split("```rust,no_run\n").skip(1).filter_map(|rest| rest.split("```").next());
        let program = blocks.into_iter().find(|block| block.contains("async fn main()"));
        let program = program.ok_or_else(|| format!("{page} has no program"))?;
        std::fs::write(Path::new(&out).join(format!("{name}.rs")), program)?;
    }
    Ok(())
}
