"""The DML_OPERATOR_SPLITs of DxDispatch's JSON models, and JSON descriptors."""
