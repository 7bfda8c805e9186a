"""Helpers for every room: loggers, Java's formats, texts of errors and ids. They import nothing of Barnabas."""
