"""Reads Terraform schemas of AWS resources and data sources out of the npm package @cdktf/provider-aws.

usage: extract_schema.py PACKAGE.tgz PROVIDER_VERSION aws_sqs_queue data.aws_region ... > schema.json

The package holds one generated JavaScript module a resource. `synthesizeHclAttributes` and the `...ToHclTerraform` functions name
the attributes and blocks with their types; getters, setters and `reset...` methods tell which are computed, required or optional.
"""

import json
import re
import sys
import tarfile

PRIMITIVE = {"string": "string", "number": "number", "boolean": "bool", "any": "dynamic"}

# By the method that a getter calls: get...Attribute('name'). None is a list that may be a set, as the getter says.
GETTER = {
    "String": "string",
    "Number": "number",
    "Boolean": "bool",
    "List": [None, "string"],
    "NumberList": [None, "number"],
    "StringMap": ["map", "string"],
    "BooleanMap": ["map", "bool"],
    "NumberMap": ["map", "number"],
    "AnyMap": ["map", "dynamic"],
}


def first_lower(name):
    return name[0].lower() + name[1:]


def first_upper(name):
    return name[0].upper() + name[1:]


def camel(name):
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def wire_type(storage, kind):
    """Terraform's type for the class that the package stores a value in, or None for a block."""
    if storage in PRIMITIVE:
        return PRIMITIVE[storage]
    if match := re.fullmatch(r"(string|number|boolean|any)(List|Map|Set)", storage):
        collection = kind if kind in ("list", "set", "map") else match[2].lower()
        return [collection, PRIMITIVE[match[1]]]
    if match := re.fullmatch(r"(string|number|boolean)MapList", storage):
        return ["list", ["map", PRIMITIVE[match[1]]]]
    return None


def members(js):
    """For each class of the module, its attributes: type or referenced class, and whether computed, required, optional."""
    classes = {}
    for found in re.finditer(r"^class (\w+) extends [\w.]+ \{\n(.*?)^\}", js, re.S | re.M):
        body = found[2]
        attributes = classes.setdefault(found[1], {})
        setters = set(re.findall(r"^    set (\w+)\(value\)", body, re.M))
        setters |= {first_lower(name) for name in re.findall(r"^    put(\w+)\(value\)", body, re.M)}
        resets = {first_lower(name) for name in re.findall(r"^    reset(\w+)\(\)", body, re.M)}

        getters = r"(cdktf\.Fn\.tolist\()?this\.get(%s)Attribute\('(\w+)'\)" % "|".join(GETTER)
        for getter in re.finditer(getters, body):
            wire = GETTER[getter[2]]
            if wire[0] is None:
                wire = ["set" if getter[1] else "list", wire[1]]
            attributes[getter[3]] = {"type": wire, "class": None, "is_set": False}
        for nested in re.finditer(r'new (\w+)\(this, "(\w+)"(?:, (true|false))?', body):
            attributes[nested[2]] = {"type": None, "class": nested[1], "is_set": nested[3] == "true"}

        for name, attribute in attributes.items():
            property_name = camel(name)
            has_put = re.search(r"^    put%s\(" % first_upper(property_name), body, re.M) is not None
            optional = property_name in resets or property_name + "Attribute" in resets
            settable = property_name in setters or optional or has_put
            attribute["optional"] = optional
            attribute["required"] = settable and not optional
            # The package does not tell optional from optional-and-computed, but for these it is known.
            attribute["computed"] = not settable or (optional and name in ("id", "arn", "tags_all", "region"))
    return classes


def declared(text):
    """What a `...HclAttributes` or `...ToHclTerraform` body lists."""
    entry = r'(\w+): \{\n\s+value: (.*?),\n\s+isBlock: (true|false),\n\s+type: "(\w+)",\n\s+storageClassType: "(\w+)"'
    return {
        found[1]: {"value": found[2], "is_block": found[3] == "true", "kind": found[4], "storage": found[5]}
        for found in re.finditer(entry, text, re.S)
    }


def nested_block(js, name, entry, required, classes):
    base = re.sub(r"(List|Map|Set)$", "", entry["storage"])
    function = first_lower(base) + "ToHclTerraform"
    body = re.search(r"^function %s\(struct\) \{(.*?)^\}" % function, js, re.S | re.M)
    if body is None:
        raise SystemExit(f"{name}: the package has no {function}")
    mode = entry["kind"] if entry["kind"] in ("list", "set") else "single"
    repeats = "listMapperHcl" in entry["value"] or "hashMapperHcl" in entry["value"]
    return {
        "nesting_mode": mode,
        "min_items": 1 if required and mode != "single" else 0,
        "max_items": 1 if not repeats and mode != "single" else 0,
        "block": block(js, declared(body[1]), base + "OutputReference", classes),
    }


def block(js, entries, class_name, classes):
    out = {"attributes": {}, "block_types": {}}
    known = classes.get(class_name, {})
    for name, entry in entries.items():
        flags = known.get(name, {"computed": False, "optional": True, "required": False})
        wire = wire_type(entry["storage"], entry["kind"])
        if entry["is_block"] or wire is None:
            out["block_types"][name] = nested_block(js, name, entry, flags["required"], classes)
        else:
            set_flags = {flag: True for flag in ("computed", "optional", "required") if flags[flag]}
            out["attributes"][name] = {"type": wire, **set_flags}

    # Getters for what nobody can set are computed attributes.
    for name, attribute in known.items():
        if name in out["attributes"] or name in out["block_types"]:
            continue
        wire = attribute["type"]
        if wire is None:
            base = re.sub(r"(List|OutputReference)$", "", attribute["class"])
            fields = classes.get(base + "OutputReference", {})
            of_object = {field: value["type"] or "dynamic" for field, value in fields.items()}
            wire = ["set" if attribute["is_set"] else "list", ["object", of_object]]
        out["attributes"][name] = {"type": wire, "computed": True}
    return out


def main():
    package, version, *wanted = sys.argv[1:]
    schemas = {"provider_version": version, "resource_schemas": {}, "data_source_schemas": {}}
    with tarfile.open(package) as archive:
        for name in wanted:
            is_data, kind = name.startswith("data."), name.removeprefix("data.")
            dashed = kind.replace("_", "-")
            folder = f"data-{dashed}" if is_data else dashed.removeprefix("aws-")
            js = archive.extractfile(f"package/lib/{folder}/index.js").read().decode()
            found = re.search(r"providerVersion: '([\d.]+)'", js)[1]
            if found != version:
                raise SystemExit(f"the package holds the schema of {found}, not of {version}")
            entries = declared(re.search(r"synthesizeHclAttributes\(\) \{(.*?)\n    \}\n", js, re.S)[1])
            class_name = re.search(r"class (\w+) extends cdktf\.Terraform(?:Resource|DataSource)", js)[1]
            kinds = schemas["data_source_schemas" if is_data else "resource_schemas"]
            kinds[kind] = {"version": 0, "block": block(js, entries, class_name, members(js))}
    json.dump(schemas, sys.stdout, indent=1, sort_keys=True)


main()
