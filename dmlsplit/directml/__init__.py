"""DirectML's Split as a specification: descriptors, feature levels and rules. Moves no data."""
