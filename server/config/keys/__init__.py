"""Every setting as data: its type, default, bounds and where it may be set."""
