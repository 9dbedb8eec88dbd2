"""Sites of which a test states what it is about, and what tests ask of sites."""

from typing import Any

from dmlsplit.frontends import Invalid, SplitSite, Unknown


def split_site(**fields: Any) -> SplitSite:
    """A Split of an ONNX model, with these fields."""
    names = {"file": "m.onnx", "graph": "net", "node": "cut", "index": 0}
    return SplitSite(**names | {"operator": "Split-13", "format": "onnx"} | fields)


def why(site: SplitSite) -> str:
    """The problem of an invalid site, or the reason of an unknown one; empty for others."""
    match site.state:
        case Invalid(text) | Unknown(text):
            return text
    return ""
