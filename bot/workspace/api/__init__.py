"""The Web API: `/api/{method}`, strict as Slack."""
