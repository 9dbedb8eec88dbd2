"""Whether DirectML would accept the splits of a model: targets, verdicts, reports, fixes.

`target.resolve_target` makes a target, `check.assess` checks the sites of a scan for it, and
`report.render` is the report about them.

A *target* is what a model is checked against: a level, and the program that passes descriptors to
DirectML. A *diagnostic* is an error, a warning or a note about a site or a target. Its type is
`Violation`. A *finding* is a diagnostic in a report. A *remedy* is what can be done about a split:
its fixes, any one of which suffices, and notes that say why there is no other. Findings that are
alike are a *group*, and a *location* is a split, or a model without one, in a report.
"""
