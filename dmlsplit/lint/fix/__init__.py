"""Refused splits replaced by standard ONNX nodes that compute the same."""
