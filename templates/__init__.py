"""Jinja2 templates of messages and pages, shipped in the wheel. No decisions in them."""
