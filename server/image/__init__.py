"""The metadata of a KRaft cluster as values: images, deltas, and the loader that builds both from records."""
