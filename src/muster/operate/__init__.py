"""Lifecycle, policy, budget, drain, repair, ledger: pure cores and the node controller around them."""
