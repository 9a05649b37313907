"""On-call sources: iCalendar feeds."""
