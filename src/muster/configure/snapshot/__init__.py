"""What a cluster is: server, nodes, images, releases, definitions, policies; and what differs between two looks."""
