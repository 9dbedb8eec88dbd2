"""Splits arrays: of each library, and as each format of models says.

A *prepared split* is the compiled program for arrays of one layout, axis and sizes, with the arrays
to allocate; calls share it from a cache. A *lowered split* runs the lowering of a model's split, if
the device's feature level accepts its descriptor or an equivalent one.
"""
