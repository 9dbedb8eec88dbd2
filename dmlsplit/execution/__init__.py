"""Splits arrays: of each library, and as each format of models says."""
