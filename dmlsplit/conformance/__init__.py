"""Cases for the real DirectML, what it said of them, and how that differs from the rules here."""
