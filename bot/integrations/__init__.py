"""Parts that an installation can run without."""
