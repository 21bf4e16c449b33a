"""What leaves Muster: CloudEvents, webhooks, chat messages, the audit log. All of it follows from written state."""
