"""A against B from the store: what differs, whether they may be compared, and what the figures say."""
