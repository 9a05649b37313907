"""Figures of the questions: `/clarify digest`, `clarify digest`, and once a week in a channel (`[digest]`)."""
