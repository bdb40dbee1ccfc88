#!/usr/bin/env python3
"""A stand-in for the provider hashicorp/aws that knows its schema and nothing else.

Enough for `terraform validate`, `terraform test` with a mocked provider, and `terraform plan` without a state. It validates nothing
beyond the schema, and cannot apply. Terraform starts it; STAND_IN_SCHEMA names the file that extract_schema.py wrote.

With STAND_IN_KNOWN=1 a plan also knows what AWS would make up (ARNs, addresses), each from the name of its resource: policies and
wiring can then be read from the plan.
"""

import json
import os
import pathlib

import msgpack
import tf.provider
from tf.gen import tfplugin_pb2 as pb
from tf.gen import tfplugin_pb2_grpc as rpc
from tf.runner import run_provider

SCHEMAS = json.loads(pathlib.Path(os.environ["STAND_IN_SCHEMA"]).read_text())
RESOURCES = SCHEMAS["resource_schemas"]
DATA_SOURCES = SCHEMAS["data_source_schemas"]

NESTING = {
    "list": pb.Schema.NestedBlock.LIST,
    "set": pb.Schema.NestedBlock.SET,
    "single": pb.Schema.NestedBlock.SINGLE,
    "map": pb.Schema.NestedBlock.MAP,
}
KNOWN = os.environ.get("STAND_IN_KNOWN") == "1"
NAMES = ("name", "function_name", "alarm_name", "dashboard_name", "table_name", "rule", "statement_id")
DATA = {
    "aws_partition": {"partition": "aws", "dns_suffix": "amazonaws.com"},
    "aws_caller_identity": {"account_id": "111122223333"},
}
NULL = msgpack.packb(None)
UNKNOWN = msgpack.ExtType(0, b"\x00")


def optional(names, kind):
    return {name: {"type": kind, "optional": True} for name in names}


EMPTY = {"attributes": {}, "block_types": {}}

# The package has no schema of the provider's own block: this is what a configuration here may say.
PROVIDER = {
    "attributes": {
        **optional(("region", "profile", "access_key", "secret_key"), "string"),
        **optional(
            (
                "skip_credentials_validation",
                "skip_metadata_api_check",
                "skip_region_validation",
                "skip_requesting_account_id",
            ),
            "bool",
        ),
    },
    "block_types": {
        "default_tags": {
            "nesting_mode": "list",
            "min_items": 0,
            "max_items": 1,
            "block": {"attributes": optional(("tags",), ["map", "string"]), "block_types": {}},
        },
    },
}


def attribute_of(name, declared):
    flags = {flag: True for flag in ("required", "optional", "computed") if declared.get(flag)}
    return pb.Schema.Attribute(name=name, type=json.dumps(declared["type"]).encode(), **flags)


def nested_of(name, declared):
    return pb.Schema.NestedBlock(
        type_name=name,
        block=block_of(declared["block"]),
        nesting=NESTING[declared["nesting_mode"]],
        min_items=declared["min_items"],
        max_items=declared["max_items"],
    )


def block_of(declared):
    return pb.Schema.Block(
        version=0,
        attributes=[attribute_of(*entry) for entry in sorted(declared["attributes"].items())],
        block_types=[nested_of(*entry) for entry in sorted(declared["block_types"].items())],
    )


def schema_of(declared):
    return pb.Schema(version=0, block=block_of(declared))


def unpack(packed):
    return msgpack.unpackb(packed, raw=False, ext_hook=msgpack.ExtType)


def pack(value):
    return pb.DynamicValue(msgpack=msgpack.packb(value))


def made_up(kind, attribute, declared, planned):
    """What AWS would fill in, if it follows from the resource's name."""
    name = next((planned[one] for one in NAMES if isinstance(planned.get(one), str)), None)
    if not KNOWN or name is None or attribute not in ("arn", "id", "url") or declared["type"] != "string":
        return UNKNOWN
    return f"arn:aws:{kind}:eu-central-1:111122223333:{name}" if attribute == "arn" else f"{kind}/{name}"


class StandIn(rpc.ProviderServicer):
    def __init__(self, app):
        pass

    def GetMetadata(self, request, context):
        return pb.GetMetadata.Response(
            server_capabilities=pb.ServerCapabilities(plan_destroy=True),
            resources=[pb.GetMetadata.ResourceMetadata(type_name=name) for name in RESOURCES],
            data_sources=[pb.GetMetadata.DataSourceMetadata(type_name=name) for name in DATA_SOURCES],
        )

    def GetProviderSchema(self, request, context):
        return pb.GetProviderSchema.Response(
            provider=schema_of(PROVIDER),
            provider_meta=schema_of(EMPTY),
            resource_schemas={name: schema_of(entry["block"]) for name, entry in RESOURCES.items()},
            data_source_schemas={name: schema_of(entry["block"]) for name, entry in DATA_SOURCES.items()},
        )

    def ValidateProviderConfig(self, request, context):
        return pb.ValidateProviderConfig.Response()

    def ValidateResourceConfig(self, request, context):
        return pb.ValidateResourceConfig.Response()

    def ValidateDataResourceConfig(self, request, context):
        return pb.ValidateDataResourceConfig.Response()

    def ConfigureProvider(self, request, context):
        return pb.ConfigureProvider.Response()

    def UpgradeResourceState(self, request, context):
        return pb.UpgradeResourceState.Response(upgraded_state=pb.DynamicValue(json=request.raw_state.json))

    def ReadResource(self, request, context):
        return pb.ReadResource.Response(new_state=request.current_state)

    def PlanResourceChange(self, request, context):
        proposed, prior = request.proposed_new_state, request.prior_state
        if proposed.msgpack == NULL:  # to be destroyed
            return pb.PlanResourceChange.Response(planned_state=proposed)
        planned = unpack(proposed.msgpack)
        if prior.msgpack == NULL:  # to be made: AWS would fill in what is computed and not set
            for name, declared in RESOURCES[request.type_name]["block"]["attributes"].items():
                if declared.get("computed") and planned.get(name) is None:
                    planned[name] = made_up(request.type_name, name, declared, planned)
        return pb.PlanResourceChange.Response(planned_state=pack(planned))

    def ReadDataSource(self, request, context):
        read = unpack(request.config.msgpack)
        read |= DATA.get(request.type_name, {}) if KNOWN else {}
        for name, declared in DATA_SOURCES[request.type_name]["block"]["attributes"].items():
            if declared.get("computed") and declared["type"] == "string" and read.get(name) is None:
                read[name] = "{}" if name.endswith("json") else f"made-up-{name}"
        return pb.ReadDataSource.Response(state=pack(read))

    def GetFunctions(self, request, context):
        return pb.GetFunctions.Response()

    def StopProvider(self, request, context):
        return pb.StopProvider.Response()


class Provider:
    def full_name(self):
        return "hashicorp/aws"


tf.provider.ProviderServicer = StandIn
run_provider(Provider())
