"""The group coordinator: the members of groups, their assignments and their committed offsets."""
