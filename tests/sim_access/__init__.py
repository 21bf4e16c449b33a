"""Access to the simulated API server: role rules, tokens and admission policies, without HTTP."""
