"""What policies allow, as the IAM User Guide documents it ("Policy evaluation logic", "IAM JSON policy
elements"), and what a request to DynamoDB asks for (Service Authorization Reference, "Actions, resources, and
condition keys for Amazon DynamoDB").

Identity policies of one account alone: no boundaries, resource policies or policy variables. What is not
known here is an error, never an answer.
"""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Call:
    """One action on one resource. A transaction asks for several."""

    action: str
    resource: str
    context: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Condition keys that the request has, each with its values."""


def listed(value) -> list:
    return value if isinstance(value, list) else [value]


def like(pattern: str, value: str, flags: int = 0) -> bool:
    """`*` stands for any text, `?` for one character; nothing else is special."""
    expression = "".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in pattern)
    return re.fullmatch(expression, value, re.S | flags) is not None


POSITIVE = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringLike": like,
    "ArnEquals": like,
    "ArnLike": like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
}
NEGATIVE = {
    "StringNotEquals": "StringEquals",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
}


def is_met(operator: str, wanted: list[str], values: tuple[str, ...]) -> bool:
    """One condition key. `values`: of the request, none if it has no such key."""
    if operator == "Null":
        return (len(values) == 0) == (wanted == ["true"])
    of_each, _, operator = operator.rpartition(":")
    if_exists = operator.endswith("IfExists")
    operator = operator.removesuffix("IfExists")
    assert operator in POSITIVE or operator in NEGATIVE, f"the operator {operator} is not known here"
    negative = operator in NEGATIVE
    test = POSITIVE[NEGATIVE.get(operator, operator)]

    def holds(value: str) -> bool:
        return any(test(one, value) for one in wanted) != negative

    match of_each:
        case "ForAllValues":  # holds without any value, too
            return all(map(holds, values))
        case "ForAnyValue":
            return any(map(holds, values)) or (if_exists and not values)
        case "":
            assert len(values) < 2, f"{operator} of several values needs ForAllValues or ForAnyValue"
            return all(map(holds, values)) and (bool(values) or negative or if_exists)
    raise AssertionError(f"{of_each} is not known here")


KNOWN = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}


def matches(statement: dict, call: Call) -> bool:
    assert statement.keys() <= KNOWN, f"not known here: {statement.keys() - KNOWN}"
    for element, value, flags in (("Action", call.action, re.I), ("Resource", call.resource, 0)):
        if element in statement:
            hit = any(like(pattern, value, flags) for pattern in listed(statement[element]))
        else:
            hit = not any(like(pattern, value, flags) for pattern in listed(statement[f"Not{element}"]))
        if not hit:
            return False
    context = {name.lower(): values for name, values in call.context.items()}
    return all(
        is_met(operator, [str(one) for one in listed(wanted)], context.get(name.lower(), ()))
        for operator, tests in statement.get("Condition", {}).items()
        for name, wanted in tests.items()
    )


def refusal(documents: list[dict], call: Call) -> str | None:
    """Why the call is refused; None if it is allowed. An explicit deny wins; without an allow it is a no."""
    hits = [one for document in documents for one in listed(document["Statement"]) if matches(one, call)]
    effects = {one["Effect"] for one in hits}
    assert effects <= {"Allow", "Deny"}, effects
    if "Deny" in effects:
        return "with an explicit deny in an identity-based policy"
    return None if "Allow" in effects else f"because no identity-based policy allows the {call.action} action"


# What a request to DynamoDB asks for.

ON_A_KEY = {"GetItem": "Key", "UpdateItem": "Key", "DeleteItem": "Key", "PutItem": "Item"}
IN_A_TRANSACTION = {
    "Put": ("PutItem", "Item"),
    "Update": ("UpdateItem", "Key"),
    "Delete": ("DeleteItem", "Key"),
    "ConditionCheck": ("ConditionCheckItem", "Key"),
    "Get": ("GetItem", "Key"),
}
PARTIQL = {
    "SELECT": "PartiQLSelect",
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
}
KEY = "vendor_dimension"


def calls(operation: str, body: dict, arn_of) -> list[Call]:
    """What is asked of IAM for a request. `arn_of`: the ARN of a table by its name."""

    def on(action: str, table: str, keys: list[str] | None = None) -> Call:
        context = {} if keys is None else {"dynamodb:LeadingKeys": tuple(keys)}
        return Call(f"dynamodb:{action}", arn_of(table), context)

    def key_of(row: dict) -> str:
        return row[KEY]["S"]

    if operation in ON_A_KEY:
        return [on(operation, body["TableName"], [key_of(body[ON_A_KEY[operation]])])]
    if operation in ("TransactWriteItems", "TransactGetItems"):
        parts = [(kind, part) for one in body["TransactItems"] for kind, part in one.items()]
        return [
            on(IN_A_TRANSACTION[kind][0], part["TableName"], [key_of(part[IN_A_TRANSACTION[kind][1]])])
            for kind, part in parts
        ]
    if operation == "BatchGetItem":
        return [
            on(operation, table, [key_of(key) for key in one["Keys"]])
            for table, one in body["RequestItems"].items()
        ]
    if operation == "BatchWriteItem":
        named = [
            (table, key_of(part.get("Item") or part["Key"]))
            for table, ones in body["RequestItems"].items()
            for one in ones
            for part in one.values()
        ]
        return [
            on(operation, table, [key for of, key in named if of == table]) for table in body["RequestItems"]
        ]
    if operation in ("ExecuteStatement", "ExecuteTransaction", "BatchExecuteStatement"):
        statements = body.get("TransactStatements") or body.get("Statements") or [body]
        words = [
            (one["Statement"].split()[0].upper(), re.search(r'"([^"]+)"', one["Statement"])[1])
            for one in statements
        ]
        return [on(PARTIQL[word], table) for word, table in words]
    # Scan, Query without its key, and everything about the table as a whole.
    return [on(operation, body.get("TableName", "*"))]
