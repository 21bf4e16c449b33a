"""A node's certificate as an in-toto statement that others can check without the cluster it comes from. Pure."""
