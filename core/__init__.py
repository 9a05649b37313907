"""The domain of clarifications: records, ledgers, the router that decides. Knows nothing of Slack or HTTP."""
