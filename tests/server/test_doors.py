"""No setting locks out whoever is to set it back."""

from __future__ import annotations
