#!/usr/bin/env python3
"""That iam.py evaluates as the IAM User Guide says."""

import unittest

from iam import Call, calls, like, refusal

TABLE = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
NOT_EMPTY = {"dynamodb:LeadingKeys": "false"}


def statement(effect="Allow", action="dynamodb:UpdateItem", **more):
    return {"Effect": effect, "Action": action, "Resource": TABLE, **more}


def may(statements, *keys, action="dynamodb:UpdateItem", resource=TABLE, **context):
    keys = {"dynamodb:LeadingKeys": keys} if keys else {}
    return (
        refusal([{"Version": "2012-10-17", "Statement": statements}], Call(action, resource, keys | context))
        is None
    )


def with_keys(operator, *patterns, null=True):
    return statement(
        Condition={operator: {"dynamodb:LeadingKeys": list(patterns)}} | ({"Null": NOT_EMPTY} if null else {})
    )


class Iam(unittest.TestCase):
    def test_what_nobody_allows_is_refused(self):
        self.assertFalse(may([]))
        self.assertFalse(may([statement(action="dynamodb:PutItem")]))
        self.assertFalse(may([statement()], resource=TABLE + "2"))
        self.assertTrue(may([statement()]))

    def test_an_explicit_deny_wins_wherever_it_stands(self):
        for statements in ([statement(), statement("Deny")], [statement("Deny"), statement()]):
            self.assertFalse(may(statements))
        deny = Call("dynamodb:UpdateItem", TABLE)
        self.assertIn(
            "explicit deny",
            refusal([{"Statement": statement()}, {"Statement": statement("Deny", "dynamodb:*")}], deny),
        )

    def test_wildcards(self):
        self.assertTrue(like("lease#openai#*", "lease#openai#rpm#1") and like("a?c", "abc") and like("*", ""))
        # Only * and ? are special.
        self.assertFalse(like("lease#[a-z]*", "lease#b") or like("a.c", "abc") or like("a?c", "ac"))
        self.assertTrue(may([statement(action="DynamoDB:update*")]), "actions have no case")
        self.assertFalse(may([statement(Resource=TABLE.upper())]), "resources do")
        self.assertFalse(may([with_keys("ForAllValues:StringLike", "OPENAI#*")], "openai#rpm"), "keys do")

    def test_for_all_values_wants_each_and_holds_for_none(self):
        own = with_keys("ForAllValues:StringLike", "openai#*", "lease#openai#*", null=False)
        self.assertTrue(may([own], "openai#rpm", "lease#openai#rpm#1"))
        self.assertFalse(may([own], "openai#rpm", "elevenlabs#concurrent"))
        self.assertTrue(may([own]), "without a key it holds: the gap that Null closes")
        self.assertFalse(may([with_keys("ForAllValues:StringLike", "openai#*")]))

    def test_what_is_not_like_a_pattern(self):
        buckets = with_keys("ForAllValues:StringNotLike", "lease#*", "load#*")
        self.assertTrue(may([buckets], "openai#rpm"))
        self.assertFalse(
            may([buckets], "lease#openai#rpm#1") or may([buckets], "openai#rpm", "load#openai#rpm")
        )

    def test_one_value_of_a_key(self):
        via = statement(Condition={"StringEquals": {"kms:ViaService": "dynamodb.eu-central-1.amazonaws.com"}})
        self.assertTrue(may([via], **{"kms:ViaService": ("dynamodb.eu-central-1.amazonaws.com",)}))
        self.assertFalse(may([via]), "a key that the request does not have")
        self.assertTrue(
            may([statement(Condition={"StringNotEquals": {"kms:ViaService": "x"}})]),
            "but not for a negated operator",
        )
        self.assertTrue(may([statement(Condition={"StringEqualsIfExists": {"kms:ViaService": "x"}})]))

    def test_what_is_not_known_is_no_answer(self):
        for unknown in ({"Condition": {"DateLessThan": {"aws:CurrentTime": "x"}}}, {"Principal": "*"}):
            with self.assertRaises(AssertionError):
                may([statement(**unknown)], **{"aws:CurrentTime": ("x",)})

    def test_a_transaction_asks_for_each_of_its_parts(self):
        key = {"vendor_dimension": {"S": "openai#rpm"}}
        parts = [
            {"Update": {"TableName": "t", "Key": key}},
            {"Put": {"TableName": "t", "Item": key | {"cost": {"N": "1"}}}},
            {"Delete": {"TableName": "t", "Key": key}},
            {"ConditionCheck": {"TableName": "t", "Key": key}},
        ]
        asked = calls("TransactWriteItems", {"TransactItems": parts}, str)
        self.assertEqual(
            [one.action.split(":")[1] for one in asked],
            ["UpdateItem", "PutItem", "DeleteItem", "ConditionCheckItem"],
        )
        self.assertTrue(all(one.context == {"dynamodb:LeadingKeys": ("openai#rpm",)} for one in asked))

    def test_a_batch_has_all_of_its_keys_and_a_scan_has_none(self):
        keys = [{"vendor_dimension": {"S": name}} for name in ("a#b", "c#d")]
        (read,) = calls("BatchGetItem", {"RequestItems": {"t": {"Keys": keys}}}, str)
        self.assertEqual(read.context, {"dynamodb:LeadingKeys": ("a#b", "c#d")})
        (written,) = calls(
            "BatchWriteItem",
            {"RequestItems": {"t": [{"PutRequest": {"Item": keys[0]}}, {"DeleteRequest": {"Key": keys[1]}}]}},
            str,
        )
        self.assertEqual(
            (written.action, written.context),
            ("dynamodb:BatchWriteItem", {"dynamodb:LeadingKeys": ("a#b", "c#d")}),
        )
        (scan,) = calls("Scan", {"TableName": "t"}, str)
        self.assertEqual((scan.action, scan.context), ("dynamodb:Scan", {}))
        (sql,) = calls(
            "ExecuteStatement", {"Statement": """DELETE FROM "t" WHERE vendor_dimension = 'a#b'"""}, str
        )
        self.assertEqual(sql.action, "dynamodb:PartiQLDelete")


if __name__ == "__main__":
    unittest.main()
