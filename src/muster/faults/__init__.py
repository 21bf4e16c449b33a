"""What faults mean (the catalogue, versioned data) and how sightings become open faults (assembly). Pure."""
