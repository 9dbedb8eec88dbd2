"""Runs DxDispatch models."""
