"""The VariadicSplits and Splits of OpenVINO IR files."""
