"""How much of a model file a scan reads, computes and remembers.

Model files are not trusted: a few bytes can ask for any amount of time or memory. Every limit is
far above what the models that people use need. A file that exceeds one is refused, or its splits
are unknown; the limits whose comments say so only leave something out.

The limit of JSON is in `files/strict_json.py`.
"""

# Limits of every format.

# The most dimensions of a value: the products of more sizes would take quadratic time. DirectML
# takes at most 8 dimensions, NumPy 64.
MAX_RANK = 64
# The most outputs of a split: more must be a mistake, and each output costs memory.
MAX_SPLIT_OUTPUTS = 2**20

# Limits of what is read of an ONNX file.

# The most fields of protobuf messages. A payload is skipped in one step, so they are what takes
# time.
MAX_FIELDS = 1_500_000
# The fields that may be read of any file, and those for each of its bytes. A small file may be read
# several times over, because calls and constants are walked again.
MIN_FIELDS = 50_000
FIELDS_PER_BYTE = 2
# The most bytes of a name.
MAX_NAME_BYTES = 16_384
# The most bytes of an attribute's string, such as the equation of an Einsum; more is cut off.
MAX_STRING_BYTES = 1_024
# The most numbers of a repeated field, and of a tensor.
MAX_VALUES = 65_536
# The most levels of nested bodies and functions, each of which takes several of the 1,000 calls
# that Python nests. Real models stay below 20.
MAX_GRAPH_DEPTH = 64

# Limits of what is computed and remembered of an ONNX file.

# The most elements of computed constants, of their inputs, and of sequences together: for a small
# file, for each byte of a larger one, and for any file. Thus the time and memory of a scan grow no
# faster than the file.
MIN_COMPUTED = 65_536
COMPUTED_PER_BYTE = 8
MAX_COMPUTED = 262_144
# The most elements of one computed constant, or of an input to one. Exporters compute shapes, which
# have far fewer.
MAX_CONSTANT_ELEMENTS = 1_024
# The most dynamic sizes that the elements of a value may follow from; more are left out.
MAX_FOLLOWED_SIZES = 16
# The most pieces of splits that a value may derive from; more are left out.
MAX_FOLLOWED_PIECES = 64
# The most pieces of a node that a scan describes.
MAX_NODE_PIECES = 32_768
# The most names of dynamic dimensions that an error can list; more are left out.
MAX_DIMENSION_NAMES = 1_000

# Limits of OpenVINO's model.xml.

MAX_XML_BYTES = 128 << 20
# The most opening tags, closing tags and texts, which take time.
MAX_XML_EVENTS = 3_000_000
# The most elements that are kept because they describe splits, which take memory.
MAX_KEPT_ELEMENTS = 250_000
# The most elements around an element.
MAX_XML_DEPTH = 96
