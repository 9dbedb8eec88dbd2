"""What tests ask of sites."""

from dmlsplit.frontends import Invalid, SplitSite, Unknown


def why(site: SplitSite) -> str:
    """The problem of an invalid site, or the reason of an unknown one; empty for others."""
    match site.state:
        case Invalid(text) | Unknown(text):
            return text
    return ""
