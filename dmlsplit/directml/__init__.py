"""DirectML's Split as a specification: descriptors, feature levels and rules. Moves no data.

A *level* is a feature level of DirectML, and an *output* one result of a split. A *lane* is one of
the narrower elements that describe a wide one, such as half of an INT64.
"""
