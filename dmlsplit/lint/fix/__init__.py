"""Refused splits replaced by standard ONNX nodes that compute the same.

A *form* (split_forms.py) is how a target can split a value: what is done before its Split, and
undone after it. A *replacement* is the nodes of a form that take the place of a split, once both
gave the same bits for the same inputs. comparison.py compares them, in the process of sandbox.py,
which limits time and memory.
"""
