"""Provider `job`: privileged Jobs on the node itself reset GPUs, restart the driver, reboot."""
