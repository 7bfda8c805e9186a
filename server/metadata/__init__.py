"""What the cluster is: the store's port and its forms, its tree, topics, and what is believed of them."""
