"""The `clarify` command's questions and answers: the same as in Slack, from a terminal or a program."""
