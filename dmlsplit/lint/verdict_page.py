"""The page of the verdicts, in Markdown: what each of them means."""

from dmlsplit.lint.verdict import Outcome

_MEANINGS = {
    Outcome.NOT_LOADED: (
        "The reason is its opset, its IR version, a type that contradicts another, or an operator "
        "that the runtime lacks. A model without a split gets this verdict too."
    ),
    Outcome.REFUSED: (
        "An application calls DirectML directly, DirectML refuses the split, and no equivalent "
        "descriptor is known."
    ),
    Outcome.REFUSED_FOR_EVERY_SIZE: "Refused, whatever the dynamic sizes are.",
    Outcome.EQUIVALENT: (
        "An application calls DirectML directly. DirectML refuses the split, but accepts the "
        "descriptor that is shown, which moves the same bytes."
    ),
    Outcome.UNWRITTEN: (
        "One output is empty, and the runtime then writes no output at all. No call fails."
    ),
    Outcome.FAILS: "The model loads, and the runtime fails at the node.",
    Outcome.UNKNOWN: (
        "It depends on sizes that are known only when the model runs, or on what no source says "
        "about the runtime."
    ),
    Outcome.ON_CPU: "The provider leaves the node to the CPU.",
    Outcome.RUNS: "DirectML accepts the split.",
    Outcome.RUNS_FOR_EVERY_SIZE: (
        "DirectML accepts the split for all dynamic sizes up to the limit that is shown."
    ),
    Outcome.FOLDED: (
        "ONNX Runtime computes the node when it loads the model, because its input is a constant "
        "or the known shape of a value."
    ),
    Outcome.NEVER_RUNS: (
        "The node is in a branch of an If, or in the body of a Loop, that a constant switches off, "
        "or in a function that no node calls."
    ),
}


def verdicts_page() -> str:
    """The page, with one first-level heading and a line for each verdict, the worst first."""
    lines = "\n".join(f"- **{outcome}**: {text}" for outcome, text in _MEANINGS.items())
    return f"# Verdicts\n\nWhat may happen to a split, the worst first.\n\n{lines}\n"
