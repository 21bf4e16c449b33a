"""What an upgrade from one bundle to another would do."""
