"""The topics of a streams application: their partition counts, and the internal topics that the broker creates."""
