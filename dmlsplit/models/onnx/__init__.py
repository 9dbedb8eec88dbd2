"""The Splits and SplitToSequences of ONNX models."""
