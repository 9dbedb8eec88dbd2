"""`dmlsplit.frameworks.torch` registers operators that a saved graph needs."""
