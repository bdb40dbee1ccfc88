#!/usr/bin/env python3
"""The READMEs of modules and examples: what stands between the marks is read from the Terraform files, in the form of terraform-docs.

readme.py            fails if one is not as the files say
readme.py --write    writes them
"""

import re
import sys
from pathlib import Path

INFRA = Path(__file__).resolve().parent
BEGIN, END = "<!-- BEGIN_TF_DOCS -->", "<!-- END_TF_DOCS -->"


def blocks(source: str, kind: str) -> list[tuple[list[str], str]]:
    """Labels and body of each block of a kind, as `terraform fmt` lays it out."""
    found = re.finditer(rf'^{kind}((?: "[^"]+")*) \{{(\}}|\n(.*?)^\}})', source, re.S | re.M)
    return [(re.findall(r'"([^"]+)"', match[1]), match[3] or "") for match in found]


def argument(body: str, name: str) -> str | None:
    """The value of an argument, with the lines that belong to it."""
    found = re.search(rf"^  {name} += (.*(?:\n    .*|\n  [)}}\]].*)*)", body, re.M)
    return found[1] if found else None


def text(value: str | None) -> str:
    return value.strip()[1:-1].replace('\\"', '"') if value else ""


def cell(value: str) -> str:
    return re.sub(r"\s+", " ", value).replace("|", "\\|").strip()


def table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["-" * len(title) for title in titles], *rows]
    return "\n".join("| " + " | ".join(cell(one) for one in line) + " |" for line in lines)


def section(title: str, titles: list[str], rows: list[list[str]]) -> str:
    return f"## {title}\n\n" + (table(titles, rows) if rows else f"No {title.lower()}.")


def documented(folder: Path) -> str:
    files = {file.name: file.read_text() for file in sorted(folder.glob("*.tf"))}
    source = "\n".join(files.values())
    needs = re.search(r'required_version = "([^"]+)"', source)[1]
    provider = re.search(r'aws = \{.*?version = "([^"]+)"', source, re.S)[1]
    modules = [[f"`{labels[0]}`", text(argument(body, "source"))] for labels, body in blocks(source, "module")]
    made = sorted((*labels, kind) for kind in ("data", "resource") for labels, _ in blocks(source, kind))
    inputs = []
    for labels, body in sorted(blocks(source, "variable")):
        default = argument(body, "default")
        name, kind = f"`{labels[0]}`", f"`{cell(argument(body, 'type') or 'any')}`"
        inputs.append(
            [
                name,
                text(argument(body, "description")),
                kind,
                f"`{cell(default)}`" if default else "n/a",
                "no" if default else "yes",
            ]
        )
    outputs = [[f"`{labels[0]}`", text(argument(body, "description"))] for labels, body in sorted(blocks(source, "output"))]
    return "\n\n".join(
        [
            section("Requirements", ["Name", "Version"], [["terraform", f"`{needs}`"], ["aws", f"`{provider}`"]]),
            section("Modules", ["Name", "Source"], modules),
            section("Resources", ["Name", "Type"], [[f"`{kind}.{name}`", what] for kind, name, what in made]),
            section("Inputs", ["Name", "Description", "Type", "Default", "Required"], inputs),
            section("Outputs", ["Name", "Description"], outputs),
        ]
    )


def main() -> None:
    write, wrong = "--write" in sys.argv[1:], []
    folders = [folder for parent in ("modules", "examples") for folder in sorted((INFRA / parent).iterdir()) if folder.is_dir()]
    for folder in folders:
        readme = folder / "README.md"
        is_text = readme.read_text() if readme.exists() else f"# {folder.name}\n\n{BEGIN}\n{END}\n"
        head, _, rest = is_text.partition(BEGIN)
        tail = rest.partition(END)[2]
        wanted = f"{head}{BEGIN}\n{documented(folder)}\n{END}{tail}"
        if write:
            readme.write_text(wanted)
        elif wanted != is_text or len(head.split()) < 8:
            wrong.append(
                f"{readme.relative_to(INFRA.parent)} is not as its files say, or does not say what it is for: infra/readme.py --write"
            )
    print("\n".join(wrong) or f"{len(folders)} READMEs are as the files say")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
