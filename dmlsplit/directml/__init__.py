"""DirectML's Split on paper: descriptors, feature levels, rules. Pure; nothing is moved here."""
