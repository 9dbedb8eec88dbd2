"""The Splits and SplitToSequences of ONNX models.

A scan reads a file in this order:

1. scanner.py opens it, and model_scan.py scans its bytes;
2. reader.py reads protobuf messages within limits, those whose fields protobuf.py names;
3. walk.py visits graphs (graphs.py, scope.py) and the functions they call (functions.py);
4. nodes.py completes the site of a split from node_facts.py: operators.py has the versions,
   arguments.py the checks of attributes and inputs, lowering.py the descriptors, and portability.py
   the warnings;
5. inference.py infers the other values (values.py): shapes with shapes.py, rearrangement.py and
   windows.py, elements with constants.py; by folding.py, ONNX Runtime leaves out nodes;
6. piece_uses.py and recombination.py follow the pieces; frozen.py and missing_sizes.py say which
   sizes a split is fixed to, or lacks.

dimensions.py has the user's sizes; declarations.py and contradictions.py compare what a model
declares with what its nodes make.

A *visit* is one node in the scope of its graph, and an *inference context*, as in ONNX's C++ API,
the node with what is known about its inputs. A *call* is always one of a function.
"""
