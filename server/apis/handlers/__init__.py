"""The handlers: one module for each API."""
