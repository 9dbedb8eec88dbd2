"""Whether DirectML would accept the splits of a model: targets, verdicts, reports, fixes."""
