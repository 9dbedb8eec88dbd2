"""Ids of parametrized tests, for values that pytest would only number."""

from typing import Any

MAX_LENGTH = 60


def case_id(value: Any) -> str | None:
    """A value in a few words, or None if pytest has words for it."""
    text = _text(value)
    return text if text is None or len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


def _text(value: Any) -> str | None:
    kind = type(value)
    if kind is dict:
        return " ".join(f"{key}={_word(item)}" for key, item in value.items()) or "defaults"
    if kind in (list, tuple):
        return ",".join(map(_word, value)) or "none"
    if kind is set:
        return ",".join(sorted(map(_word, value))) or "none"
    if kind.__name__ == "ModelProto":
        operators = (node.op_type for node in value.graph.node if node.op_type != "Constant")
        return f"{' '.join(operators)} of {' '.join(map(_declared, value.graph.input))}"
    if kind.__name__ == "NodeProto":
        return str(value.op_type)
    if kind.__name__ == "ndarray":
        return f"{value.dtype}{[*value.shape]}"
    # Descriptors, operators with their version and targets say in short what they are.
    is_own = kind.__module__.startswith("dmlsplit.") and not isinstance(value, BaseException)
    return str(value) if is_own and "__str__" in vars(kind) else None


def _word(item: Any) -> str:
    if isinstance(item, int) and abs(item) >> 128:  # Python writes no long decimals
        return hex(item)
    return _text(item) or getattr(item, "__name__", None) or str(item)


def _declared(declaration: Any) -> str:
    from onnx import TensorProto

    tensor = declaration.type.tensor_type
    sizes = ",".join(str(dim.dim_param or dim.dim_value) for dim in tensor.shape.dim)
    return f"{TensorProto.DataType.Name(tensor.elem_type)}[{sizes}]"
