"""Ledger files of the Clarification Protocol: see `bridge.py`."""
