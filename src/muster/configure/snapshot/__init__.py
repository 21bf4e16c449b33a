"""What a Linux node is: collectors that read it, each reading classed for the fingerprint."""
